/* test_grammar.c -- grammars: what is accepted, refused and produced; masks beside brute force; hostile sources.
 *
 * --bench times masks and steps over a vocabulary of 128,000 words. */
#include "support/test.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/words.h"

/* ---- what each construct means ---- */

#define D9 "123456789"
#define E9 "ééééééééé"
#define YZ "yzyzyzyzyzyzyzyz" /* 16 */
#define OBJECT3 "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"},\"c\":true}"

static const struct {
    rg_grammar_kind kind;
    const char *source, *yes[10], *no[12];
} cases[] = {
    { C, "[\"yes\",\"no\",\"yesterday\",\"\\u00e9\"]", { "yes", "no", "yesterday", "é" }, { "", "ye", "yester", "yess", "e" } },
    { C, "[\"\",\"a\"]", { "", "a" }, { "aa" } },
    { C, "[\"abc\",\"ab\",\"abd\",\"b\",\"bcd\",\"abc\",\"a\",\"bc\",\"xyz\",\"x\",\"abcdefgh\"]", { "a", "ab", "abc", "abcdefgh",
          "bc" },
      { "", "abcd", "xy", "abcdefg" } },
    { X, "a(b|c)*d{2,3}", { "add", "abcbdd", "addd" }, { "ad", "adddd", "dd" } },
    { X, "^(?:ab|\\d+)?$", { "", "ab", "17" }, { "a", "ab1" } },
    { X, "[^a-c]é\\w.", { "déx!", "日é_日" }, { "aéxx", "dexx", "déx\n" } },
    { X, "(a*)*", { "", "aaaa" }, { "b" } },
    { X, "((a?){3}b?)*c", { "c", "aaabc", "bbbc" }, { "", "ab" } },
    { X, "(a|ab)(c|bcd)(d*)", { "abcd", "acd", "abcdd" }, { "ab" } },
    { X, "[\\]\\-x]{2,}|\\x41\\u0042\\u{43}\\t", { "]-", "xx]", "ABC\t" }, { "x", "ABC" } },
    { X, "\\ud83d\\ude00+", { "😀", "😀😀" }, { "", "\xf0\x9f" } },
    { X, "a{0,4294967294}b", { "b", "aaab" }, { "aaa" } },
    { X, "(?<year>[0-9]{4})-(?P<m>\\d\\d)", { "2024-01" }, { "2024-1" } },
    { X, "a{|x{y}|{\"b\": 1}", { "a{", "x{y}", "{\"b\": 1}" }, { "aaa" } },
    { X, "\\S+\\s\\D", { "ab x" }, { "ab 1", "abx" } },
    { G, "root ::= \"a\" item{2} # c\nitem ::= [x-z] | \"q\"+\n | \"w\"", { "axy", "aqqw" }, { "ax", "axyz" } },
    { G, "# head\n\nroot  ::= (\n \"x\" ws\n (\",\" ws \"x\" ws)*\n)? \"]\"\nws ::= [ \\t\\n]*\n", { "]", "x, x]", "x\n]" },
          { "x,]" } },
    { G, "root ::= [^\\n\"\\]]{1,2} \"\\x41\\u00e9\" .", { "abAé!", "日Aé\n" }, { "Aé!", "\"Aé!" } },
    { G, "root ::= \"(\" root \")\" | \"\"", { "", "()", "((()))" }, { "(", "())" } },
    { G, "root ::= a{,2} b{1,}\na ::= \"a\"\nb ::= \"b\"", { "b", "aabb" }, { "aaab", "aa" } },
    { J, "", { "{}", "{\"a\":[1,-2.5e+3,{\"b\":null}]}", "{ \"\\u00e9\\n\" : \"\\ud83d\\ude00\" }" }, { "[]", "1" } },
    { J, "", { "{\"é\\\"\":true, \"x\":[]}" }, { "{\"a\":1,}", "{\"a\":\"\\ud83d\"}", "{\"a\":01}", "{\"a\":\"\x01\"}", "{'a':1}",
          "{\"a\" 1}" } },
    { S, "true", { "1", "null", "[{}]" }, { "", "nul" } },
    { S, "{\"type\":\"integer\"}", { "0", "-1", "12345678901" }, { "-0", "01", "1.0", "1e3", "-" } },
    { S, "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}", { "-12", "-1", "0", "9", "105" }, { "-13", "106", "1000" } },
    { S, "{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
      { "-9223372036854775808", "9223372036854775807", "0" }, { "-9223372036854775809", "9223372036854775808",
        "99999999999999999999" } },
    { S, "{\"type\":\"integer\",\"exclusiveMinimum\":9223372036854775806}", { "9223372036854775807", "9223372036854775808" },
      { "9223372036854775806", "1" } },
    { S, "{\"type\":\"integer\",\"exclusiveMaximum\":-9223372036854775807}", { "-9223372036854775808", "-10000000000000000000" },
      { "-9223372036854775807", "0" } },
    { S, "{\"type\":\"integer\",\"minimum\":9007199254740992,\"allOf\":[{\"minimum\":9007199254740993}]}",
      { "9007199254740993" }, { "9007199254740992" } },
    { S, "{\"enum\":[9007199254740992,9007199254740993],\"minimum\":9007199254740993}", { "9007199254740993" },
      { "9007199254740992" } },
    { S, "{\"const\":9007199254740993,\"enum\":[9007199254740992.0,9007199254740993]}", { "9007199254740993" },
      { "9007199254740992" } },
    { S, "{\"type\":\"integer\",\"maximum\":9.3e18}", { "9300000000000000000" }, { "9300000000000000001" } },
    { S, "{\"type\":\"integer\",\"exclusiveMinimum\":0.5,\"exclusiveMaximum\":3}", { "1", "2" }, { "0", "3", "-1" } },
    { S, "{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":2.25}", { "-1.5", "-0.3", "2", "2.2499", "0" }, { "2.25",
          "-1.51", "2.3", "3" } },
    { S, "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", { "0.001", "1", "1.0" }, { "0", "0.0", "1.01", "-1" } },
    { S, "{\"type\":\"number\"}", { "-0.5e-10", "1E5" }, { ".5", "1.", "+1" } },
    { S, "{\"type\":[\"string\",\"null\"],\"minLength\":1,\"maxLength\":2}", { "\"é日\"", "\"\\n\"", "null",
          "\"\\ud83d\\ude00x\"" }, { "\"\"", "\"abc\"", "1" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^a+$|b\"}", { "\"aa\"", "\"xbx\"" }, { "\"ax\"", "\"\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\n]x\"}", { "\"\\\"xyz\"", "\"\\nx\"" }, { "\"x\"" } },
    { S, "{\"enum\":[1,\"a\",null,[1,{\"b\":2}],2.5]}", { "1", "\"a\"", "null", "[1, {\"b\": 2}]", "2.5" }, { "2", "\"b\"", "[1]",
          "[1,{}]" } },
    { S, "{\"const\":{\"a\":1,\"b\":\"x\"}}", { "{\"b\":\"x\",\"a\":1}" }, { "{\"a\":1}", "{\"a\":1,\"b\":\"x\",\"c\":1}" } },
    { S, OBJECT3 ",\"required\":[\"a\"]}", { "{\"a\":1}", "{\"b\":\"\",\"a\":2}", "{\"c\":[],\"a\":0}" },
      { "{}", "{\"a\":1,\"z\":1}", "{\"a\":\"\"}", "{\"a\":1,\"a\":2}", "{\"b\":\"x\"}", "{\"\\u0061\":1,\"a\":1}",
      "{\"a\":1,}" } },
    { S, OBJECT3 ",\"additionalProperties\":false,\"maxProperties\":1}", { "{}", "{\"c\":{}}" }, { "{\"a\":1,\"b\":\"\"}",
          "{\"d\":1}" } },
    { S, OBJECT3 ",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1}", { "{\"d\":null}", "{\"a\":1}" }, { "{}",
          "{\"d\":1}" } },
    { S,
      "{\"type\":\"object\",\"additionalProperties\":true,\"required\":[\"q\\\"\"],\"properties\":{\"q\\\"\":{},\"q\":false}}",
      { "{\"q\\\"\":1}",
          "{\"qq\":1,\"q\\\"\":1}" },
      { "{}", "{\"q\\\"\":1,\"q\":1}" } },
    { S, "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},\"properties\":{\"a\":tru"
         "e},\"additionalProperties\":false}",
      { "{\"x1\":1,\"a\":null}", "{}" }, { "{\"x1\":\"\"}", "{\"y\":1}" } },
    { S, "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":3}", { "[true,false]",
          "[ true , true,true ]" }, { "[]", "[true]", "[true,true,true,true]", "[1,1]" } },
    { S, "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false}", { "[]", "[1]", "[1,2]" }, { "[2]",
          "[1,2,3]" } },
    { S, "{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":0},\"minItems\":2}", { "[1,0]", "[1,0,0]" },
          { "[1]", "[0,0]" } },
    { S, "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{"
         "\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},"
         "\"required\":[\"next\"],\"additionalProperties\":false}}}", { "{\"next\":null}", "{\"next\":{\"next\":null}}" }, { "{}",
             "{\"next\":{}}" } },
    { S, "{\"definitions\":{\"a/b~c\":{\"type\":\"null\"}},\"items\":{\"$ref\":\"#/definitions/a~1b~0c\"},\"type\":\"array\"}",
          { "[null]" }, { "[1]" } },
    { S, "{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}", { "3", "5" }, { "2", "6" } },
    { S, "{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":2}}},{\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"]}],\"type\":\"object\"}",
      { "{\"a\":2}" }, { "{\"a\":1}", "{}" } },
    { S, "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", { "\"\"", "4" }, { "4.5", "null" } },
    { S, "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"null\"}},\"required\":[\"k\"]"
         ",\"type\":\"object\"},"
         "{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"],\"type\":\"object\"}]}", { "{\"k\":\"a\",\"v\":null}",
             "{\"k\":\"b\"}" }, { "{\"k\":\"a\",\"v\":1}", "{\"v\":1,\"k\":\"b\"}" } },
    { S, "{\"anyOf\":[{\"minimum\":5},{\"const\":\"x\"}],\"type\":[\"integer\",\"string\"]}", { "5", "\"y\"", "\"x\"" }, { "4" } },
    { S, "{\"type\":\"string\",\"format\":\"date\"}", { "\"2024-02-29\"", "\"0001-12-31\"" }, { "\"2023-02-29\"", "\"1900-02-29\"",
          "\"2024-04-31\"" } },
    { S, "{\"type\":\"string\",\"format\":\"date-time\"}", { "\"2024-02-29T23:59:59.5Z\"", "\"2024-01-01T00:00:00+05:30\"" },
          { "\"2024-01-01T24:00:00Z\"", "\"2024-01-01\"" } },
    { S, "{\"type\":\"string\",\"format\":\"uuid\"}", { "\"123e4567-e89b-12d3-a456-426614174000\"" }, { "\"123e4567\"" } },
    { S, "{\"type\":\"string\",\"format\":\"ipv4\"}", { "\"255.0.10.199\"" }, { "\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\"" } },
    { S, "{\"type\":\"string\",\"format\":\"ipv6\"}", { "\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"" }, { "\"1:2\"",
          "\"1::2::3\"" } },
    { S, "{\"type\":\"string\",\"format\":\"hostname\"}", { "\"a\"", "\"a1.b-c.d--e.xn\"", "\"a--b\"", "\"abc\"", "\"xn-a\"",
          "\"abcd-e--f\"", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"" },
      { "\"xn--a\"", "\"xn--mgba3a4f16a\"", "\"a.XN--999.b\"", "\"ab--c\"", "\"-a\"", "\"a-\"", "\"ab-\"", "\"abc-\"", "\"a..b\"",
        "\"ab--\"", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"" } },
    { S, "{\"$id\":\"http://a/b\",\"properties\":{\"$id\":{\"type\":\"null\"}},\"required\":[\"$id\"],\"type\":\"object\"}",
      { "{\"$id\":null}" }, { "{\"$id\":1}" } },
    { S, "{\"type\":\"string\",\"format\":\"email\"}", { "\"a.b@c.de\"" }, { "\"a@\"", "\"@b.c\"" } },
    { S, "{\"type\":\"string\",\"format\":\"uri\"}", { "\"https://a.b:80/c?d=e#f\"" }, { "\"a\"", "\"//x\"" } },
    { S, "{\"enum\":[1,2,3,\"abc\",\"a\"],\"minimum\":2,\"maxLength\":2,\"title\":\"t\",\"examples\":[1]}", { "2", "\"a\"" },
          { "1", "\"abc\"" } },
    { S, "{\"type\":\"string\",\"format\":\"password\",\"minLength\":2,\"x-order\":1,\"example\":3,\"contentSchema\":{\"not\":1}}",
      { "\"ab\"" }, { "\"a\"" } },
    { S, "{\"type\":\"string\",\"format\":\"duration\"}", { "\"P1Y2M3D\"", "\"PT5S\"", "\"P2W\"" }, { "\"P\"", "\"P1YT\"",
      "\"1D\"" } },
    { S, "{\"type\":\"string\",\"format\":\"uuid4\"}", { "\"123e4567-e89b-42d3-a456-426614174000\"" },
      { "\"123e4567-e89b-12d3-a456-426614174000\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":3}", { "\"ab\"", "\"abc\"" },
      { "\"a\"", "\"abcd\"", "\"\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^(ab)*$\",\"minLength\":3,\"maxLength\":5}", { "\"abab\"" }, { "\"ab\"",
      "\"ababab\"", "\"aba\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"\\\\S$\",\"maxLength\":2}", { "\"é\"", "\"\\\"é\"", "\"日本\"" }, { "\"日本é\"",
      "\"é \"", "\"\"" } },
    { S, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"unevaluatedProperties\":false}",
      { "{\"a\":1}", "{}" }, { "{\"b\":1}", "{\"a\":1,\"b\":1}" } },
    { S, "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}],\"properties\":"
      "{\"b\":{\"type\":\"boolean\"}},\"unevaluatedProperties\":{\"type\":\"null\"}}",
      { "{\"a\":1,\"b\":true}", "{\"a\":1}", "{\"a\":1,\"c\":null}" },
      { "{\"b\":true}", "{\"a\":1,\"c\":1}", "{\"a\":null}" } },
    { S, "{\"properties\":{\"unevaluatedProperties\":{\"type\":\"integer\"}},\"additionalProperties\":false,\"type\":\"object\"}",
      { "{\"unevaluatedProperties\":1}" }, { "{\"additionalProperties\":1}", "{\"b\":1}" } },
    { S, "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"unevaluatedItems\":false}", { "[]", "[1]" }, { "[1,2]" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^x.*$\",\"maxLength\":64}", { "\"x\"", "\"x" D9 D9 D9 D9 D9 D9 D9 "\"" },
      { "\"\"", "\"x" D9 D9 D9 D9 D9 D9 D9 "1\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^x(yz)*$\",\"minLength\":64,\"maxLength\":66}", { "\"x" YZ YZ YZ YZ "\"" },
      { "\"x" YZ YZ YZ "\"", "\"x" YZ YZ YZ YZ "yz\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^é+(b|ccc)$\",\"minLength\":66}",
      { "\"é" E9 E9 E9 E9 E9 E9 E9 "éb\"", "\"é" E9 E9 E9 E9 E9 E9 E9 "ccc\"" }, { "\"é" E9 E9 E9 E9 E9 E9 E9 "b\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^(ab)+$\",\"minLength\":3}", { "\"abab\"", "\"abababab\"" }, { "\"ab\"",
      "\"abababa\"" } },
    { S, "{\"type\":\"string\",\"format\":\"uuid\",\"pattern\":\"^[0-9a-f-]+$\"}", { "\"123e4567-e89b-12d3-a456-426614174000\"" },
      { "\"123E4567-e89b-12d3-a456-426614174000\"" } },
    { S, "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":6}", { "\"a@b.c\"", "\"a@b.cd\"" }, { "\"ab@c.de\"" } },
    { S, "{\"allOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"pattern\":\"b\"},{\"pattern\":\"^.{2,3}$\"}]}", { "\"ba\"",
      "\"axb\"" },
      { "\"aa\"", "\"abcd\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^(?!no)(?=.*x)[a-z]+$\"}", { "\"axb\"", "\"nx\"" }, { "\"nox\"", "\"ab\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^(?!root$)[a-z]{3,5}$\"}", { "\"roots\"", "\"roo\"" }, { "\"root\"" } },
    { S, "{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}", { "\"-1.5\"", "\"00\"" }, { "\"-\"",
      "\"\"", "\"+.\"" } },
    { S, "{\"enum\":[\"ab\",\"ba\",\"a\"],\"pattern\":\"^a\",\"minLength\":2}", { "\"ab\"" }, { "\"ba\"", "\"a\"" } },
    { S, "{\"type\":\"integer\",\"multipleOf\":5}", { "0", "-15", "100000" }, { "1", "-0", "05", "12" } },
    { S, "{\"type\":\"number\",\"multipleOf\":7,\"minimum\":10,\"maximum\":30}", { "14", "28" }, { "7", "15", "35" } },
    { S, "{\"type\":\"integer\",\"multipleOf\":3600,\"exclusiveMinimum\":0}", { "3600", "86400" }, { "0", "60", "-3600" } },
    { S, "{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-1,\"maximum\":1}", { "-0.75", "1", "0", "0.5" }, { "0.3", "1.25",
      "0.50" } },
    { S, "{\"allOf\":[{\"type\":\"integer\",\"multipleOf\":4},{\"multipleOf\":6}]}", { "12", "-24", "0" }, { "6", "8" } },
    { S, "{\"enum\":[2,3,4],\"multipleOf\":2}", { "2", "4" }, { "3" } },
    { S, "{\"type\":\"number\",\"minimum\":1,\"exclusiveMinimum\":true,\"maximum\":2,\"exclusiveMaximum\":false}", { "1.5", "2" },
      { "1", "2.5" } },
    { S, "{\"type\":\"array\",\"items\":{\"enum\":[\"p\",\"q\",1]},\"uniqueItems\":true,\"minItems\":1}",
      { "[\"p\"]", "[1, \"p\",\"q\"]", "[\"q\" , \"p\" ]" }, { "[]", "[\"p\",\"p\"]", "[1,\"q\",1]", "[\"q\",]", "[\"q\"" } },
    { S, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},\"uniqueItems\":true,\"maxItems\":2}", { "[]",
      "[\"a\",\"b\"]" },
      { "[\"a\",\"a\"]", "[\"\\u0061\"]", "[\"a\",\"b\",\"c\"]", "[\"abcd\"]" } },
    { S, "{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"null\"]},\"uniqueItems\":true}", { "[1,null,0.5]" }, { "[1,1.0]",
      "[1e0]", "[2,2]" } },
    { S, "{\"type\":\"array\",\"contains\":{\"const\":1}}", { "[1]", "[0,1]", "[1,\"a\",1]", "[[1],1,2]" }, { "[]", "[0]",
      "[[1]]", "1" } },
    { S, "{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"contains\":{\"maximum\":2},\"minContains\":2,\"maxItems\":3}",
      { "[1,2]", "[2,3,1]", "[1,1,1]" }, { "[1]", "[3,3,1]", "[1,2,3,3]", "[1,4,2]" } },
    { S, "{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"maxContains\":1,\"minItems\":2}",
      { "[1,\"a\"]", "[\"a\",null,[\"b\"]]" }, { "[\"a\"]", "[\"a\",\"b\"]", "[1,2]" } },
    { S, "{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":0,\"maxContains\":0}", { "[]", "[2,\"1\"]" },
      { "[1]", "[2,1]" } },
    { S, "{\"type\":\"array\",\"allOf\":[{\"contains\":{\"minimum\":5}},{\"contains\":{\"type\":\"integer\"}}]}",
      { "[5]", "[6.5,1]", "[\"a\",1,null,7]" }, { "[6.5]", "[1,2]", "[\"a\"]" } },
    { S, "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],"
         "\"items\":{\"type\":\"integer\"},\"contains\":{\"enum\":[\"x\",9]}}",
      { "[\"x\"]", "[\"a\",9]", "[\"x\",1,2,3]" }, { "[\"a\"]", "[9]", "[\"a\",1,\"x\"]" } },
    { S, "{\"type\":\"array\",\"not\":{\"contains\":{\"const\":1},\"minContains\":2}}", { "[]", "[1]", "[2,1,3]" },
      { "[1,1]", "[1,2,1]" } },
    { S, "{\"contains\":{\"const\":1}}", { "1", "\"a\"", "[1]" }, { "[]", "[2]" } },
    { S, "{\"enum\":[[1,2],[2,3],[1,1]],\"contains\":{\"const\":1},\"maxContains\":1}", { "[1,2]" }, { "[2,3]", "[1,1]" } },
    { S, "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"additionalProperties\":false},\"uniqueItems\":true}", { "[]",
      "[{}]" }, { "[{},{}]" } },
    { S, "{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}", { "[]", "[null]" }, { "[null,null]",
      "[1]" } },
    { S, "{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":{\"const\":1}}", { "[null,1,1]" },
      { "[null,2]" } },
    { S, "{\"type\":\"integer\",\"nullable\":true}", { "1", "null" }, { "\"a\"" } },
    { S, "{\"enum\":[\"a\"],\"nullable\":true}", { "\"a\"" }, { "null" } },
    { S, "{\"type\":\"object\",\"properties\":null,\"required\":null,\"additionalProperties\":false,\"minProperties\":null}",
      { "{}" }, { "null", "{\"a\":1}" } },
    { S, "{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"const\":1}}", { "{\"x\":1}" },
      { "{\"x\":2}" } },
    { S, "{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{\"const\":1}}", { "{}",
      "{\"b\":1,\"a\":1}" }, { "{\"c\":1}" } },
    { S, "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]+$\",\"maxLength\":2},"
         "\"additionalProperties\":{\"const\":1}}", { "{\"ab\":1}" },
      { "{\"c\":1}", "{\"aba\":1}" } },
    { G, "root ::= call+\ncall ::= \"<\" %json {\"$ref\": \"#/$defs/a}\\\"\", \"$defs\": {\"a}\\\"\": {\"type\": \"integer\"}}} "
         "\">\" | %json {\"const\": [\"{\"]}", { "<12>", "<1>[\"{\"]<2>" }, { "", "<\"\">", "<1" } },
    { J, "", { "{ }", "{\n}", "{\r\n\t \"a\" : [\n                    1 ] }" }, { "{  }", "{\n\n}", "{\t}",
          "{\n                     }" } },
};

static void constructs(void **state)
{
    words w = all_bytes();

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_grammar *g = compile(&w, cases[i].kind, cases[i].source);
        for (size_t k = 0; k < RG_LEN(cases[i].yes) && cases[i].yes[k]; k++)
            if (!accepts(g, cases[i].yes[k]))
                fail_msg("%s refuses %s", cases[i].source, cases[i].yes[k]);
        for (size_t k = 0; k < RG_LEN(cases[i].no) && cases[i].no[k]; k++)
            if (accepts(g, cases[i].no[k]))
                fail_msg("%s accepts %s", cases[i].source, cases[i].no[k]);
        rg_grammar_unref(g);
    }
    free_words(&w);
}

static const struct {
    rg_grammar_kind kind;
    const char *source, *says;
} refused[] = {
    { X, "a(?=b)", "lookaround" },        { X, "(?<!a)b", "lookaround" },      { X, "(a)\\1", "backreference" },
    { X, "(?P=n)", "backreference" },     { X, "\\ba", "word boundary" },      { X, "(?i)a", "flags" },
    { X, "a^b", "anchor" },               { X, "(a$)", "anchor" },             { X, "^+", "repetition of nothing" },
    { X, "{2}", "repetition of nothing" }, { X, "a**", "repetition of nothing" }, { X, "*", "repetition of nothing" },
    { X, "(", "without its ')'" },        { X, "a)", "without its '('" },      { X, "[a", "byte 0: a '[' without its ']'" },
    { X, "b[^", "byte 1: a '['" },        { X, "[\\", "'\\' at the end" },    { X, "[a-\\", "'\\' at the end" },
    { X, "[z-a]", "wrong order" },        { X, "a{3,2}", "wrong order" },      { X, "a++", "possessive" },
    { X, "[[:alpha:]]", "POSIX" },        { X, "[a&&b]", "operation" },        { X, "\\p{L}", "Unicode property" },
    { X, "[]a]", "begins with" },         { X, "\\uzzzz", "digits" },          { X, "a\\", "'\\' at the end" },
    { X, "\xff", "UTF-8" },               { X, "a{0,4294967295}", "repetition of" }, { X, "a{99999999}", "repetition of" },
    { G, "root ::= root \"a\" | \"b\"", "left recursion: rule 'root'" },
    { G, "root ::= a\na ::= b? c\nb ::= \"b\"\nc ::= a \"x\" | \"y\"", "left recursion" },
    { G, "root ::= a", "'a' is used" },   { G, "x ::= \"a\"", "no rule 'root'" }, { G, "root ::= \"a", "text ends" },
    { G, "root ::= (\"a\"", "without" },  { G, "root ::= \"a\" )", "without" }, { G, "root ::= *", "repetition of nothing" },
    { X, "a{,3}", "means different things" }, { G, "root ::= \"a\" root", "nothing can satisfy" }, { G, "", "no rule 'root'" },
    { G, "root ::= \"a\"\nroot ::= \"b\"", "defined before" }, { G, "root ::= <think>", "tokens" }, { G, "root ::= \"\\q\"",
          "escape" },
    { G, "root = \"a\"", "want a rule" }, { G, "root ::= [b-a]", "wrong order" }, { G, "root ::= []", "nothing can satisfy" },
    { G, "root ::= %json 1", "%json" },   { G, "root ::= %jso {}", "%json" },  { G, "root ::= %json {\"a\": \"}", "%json" },
    { G, "root ::= %json {\"items\": {\"extends\": {}}}", "'extends'" },
    { C, "[]", "empty" },                 { C, "[1]", "not a text" },          { C, "{}", "not a list" }, { C, "[\"a\"",
          "not JSON" },
    { S, "{", "not JSON" },               { S, "3", "must be an object" },             { S, "false", "nothing can satisfy" },
    { S, "{\"not\":{}}", "nothing can satisfy" },
    { S, "{\"multipleOf\":0,\"type\":\"integer\"}", "'multipleOf'" }, { S, "{\"extends\":{}}", "'extends'" },
    { S, "{\"contains\":{\"const\":1},\"minContains\":5000}", "'contains' with so many" },

    { S, "{\"type\":\"array\",\"items\":{\"type\":\"array\"},\"uniqueItems\":true,\"minItems\":2}", "'uniqueItems'" },
    { S, "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true,\"minItems\":3}", "'uniqueItems'" },
    { S, "{\"type\":\"string\",\"pattern\":\"^(?!a)b|c$\"}", "lookaround" }, { S, "{\"$ref\":\"http://x/y\"}", "http://x/y" },
    { S, "{\"$ref\":\"#/$defs/a/items\",\"$defs\":{\"a\":{\"$id\":\"b\",\"items\":{\"$ref\":\"#/$defs/c\"}}}}", "leads nowhere" },
    { S, "{\"$ref\":\"#\"}", "cycle" },   { S, "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", "cycle" },
    { S, "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/b\"}",
          "cycle" },
    { S, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "" }, { S, "{\"$ref\":\"#/nowhere\"}", "nowhere" },
    { S, "{\"type\":\"strin\"}", "'type'" }, { S, "{\"type\":\"object\",\"required\":[1]}", "'required'" },
    { S, "{\"required\":\"a\"}", "'required'" }, { S, "{\"minLength\":-1}", "'minLength'" }, { S, "{\"maxItems\":\"a\"}",
          "'maxItems'" },
    { S, "{\"minItems\":2147483648}", "'minItems'" },
    { S, "{\"type\":\"string\",\"pattern\":\"a(?=b)\"}", "lookaround" },
    { S, "{\"pattern\":\"^abcd$\",\"maxLength\":3,\"type\":\"string\"}", "nothing can satisfy" },
    { S, "{\"oneOf\":[{\"type\":\"string\"},{\"format\":\"date\"}]}", "may hold at once" },
    { S, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "nothing can satisfy" }, { S,
          "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}", "nothing can satisfy" },
    { S, "{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#\"}},\"required\":[\"n\"]}", "nothing can satisfy" },
    { S, "{\"type\":\"string\",\"enum\":[1]}", "nothing can satisfy" }, { S, "{\"a\":1,\"a\":2}", "key twice" }, { S,
          "{\"minimum\":1e400}", "" },
    { S, "{\"exclusiveMinimum\":\"1\",\"type\":\"number\"}", "not a number" }, { S, "{\"allOf\":[]}", "'allOf'" }, { S,
          "{\"anyOf\":{}}", "'anyOf'" },
};

static void named(void **state)
{
    words w = all_bytes();
    rg_error err, again;

    (void)state;
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        const char *s = refused[i].source;
        rg_grammar *g = rg_grammar_compile(w.v, &SOURCE(refused[i].kind, s, strlen(s)), &err);
        if (g)
            fail_msg("accepted: %s", s);
        if (!strstr(err.text, refused[i].says))
            fail_msg("%s: %s", s, err.text);
        assert_null(rg_grammar_compile(w.v, &SOURCE(refused[i].kind, s, strlen(s)), &again));
        assert_string_equal(err.text, again.text);
        assert_int_equal(err.code, again.code);
    }
    free_words(&w);
}

/* ---- masks beside brute force, and answers at random ---- */

static const char *const pieces[] = {
    "\":", "\",", "\"}", "{\"", "true", "null,", "\": ", "\", \"", "}}", "]}", "}]", "[[", "1,", ", ", "10", "-1", "ab",
    "abc", "a\"", "\\u00", "\xc3\xa9", "\xe2\x82", "\x82\xac", "e\"}", "  ", "\n  ", "aa", "aaaa", "bb", "\"a\":", "\"a",
    "x\":1", "}\n", "é\"", "\xa9\"", "d8", "\\ud8", "0.5", "e+", "日本", "}}}}", "\"b\":\"", "ab",
};

/* Every id that the mask allows can be taken, and no other. */
static void check_mask(const words *w, rg_grammar_state *st, rg_grammar_state *copy, float *logits)
{
    int32_t end = w->n - 1;
    bool any = false, complete = rg_grammar_complete(st);

    for (int32_t i = 0; i < w->n; i++)
        logits[i] = (float)i;
    rg_grammar_mask(st, logits, w->n, &end, 1, true);
    for (int32_t i = 0; i < end; i++) {
        rg_grammar_copy(copy, st);
        bool can = rg_grammar_advance(copy, i), may = logits[i] != -INFINITY;
        if (can != may)
            fail_msg("id %d '%.*s': mask %d, advance %d", i, (int)(w->offset[i + 1] - w->offset[i]), w->data + w->offset[i], may,
                can);
        assert_true(!may || logits[i] == (float)i);
        any |= can;
    }
    assert_int_equal(logits[end] != -INFINITY, complete || !any);
    assert_true(any || complete);
    assert_int_equal(rg_grammar_stuck(st), complete && !any);
    for (int32_t i = 0; i < w->n; i++)
        logits[i] = 0;
    rg_grammar_mask(st, logits, w->n, &end, 1, false);
    assert_int_equal(logits[end] != -INFINITY, !any);
    assert_false(rg_grammar_lost(st)); /* nothing was left out for want of room */
}

/* Take allowed ids at random; whatever closes something is preferred after a while.  The answer, or NULL. */
static bool generate(const words *w, rg_grammar *g, rg_rng *r, rg_buf *out, bool check)
{
    rg_grammar_state *st = rg_grammar_start(g, NULL), *copy = rg_grammar_start(g, NULL);
    float *logits = calloc((size_t)w->n, sizeof *logits);
    int32_t end = w->n - 1;
    bool ended = false;

    for (int step = 0; step < 600 && !ended; step++) {
        int32_t best = -1;
        float top = -INFINITY;

        if (check)
            check_mask(w, st, copy, logits);
        memset(logits, 0, (size_t)w->n * sizeof *logits);
        rg_grammar_mask(st, logits, w->n, &end, 1, true);
        for (int32_t i = 0; i < w->n; i++) {
            char c = i < end ? w->data[w->offset[i]] : 0;
            bool close = i == end || c == '"' || c == '}' || c == ']';
            float x = logits[i] == -INFINITY ? -INFINITY : rg_rng_unit(r) + (close && step > 20 ? 0.01f * (float)step : 0.0f);
            if (x > top)
                top = x, best = i;
        }
        assert_true(best >= 0);
        if (best == end) {
            assert_true(rg_grammar_complete(st));
            ended = true;
        } else {
            assert_true(rg_grammar_advance(st, best));
            rg_buf_add(out, w->data + w->offset[best], w->offset[best + 1] - w->offset[best]);
        }
    }
    free(logits);
    rg_grammar_stop(st);
    rg_grammar_stop(copy);
    return ended;
}

static bool accepts_bytes(rg_grammar *g, const char *s, size_t n)
{
    rg_grammar_state *st = rg_grammar_start(g, NULL);
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++)
        ok = rg_grammar_advance(st, (unsigned char)s[i]);
    ok = ok && rg_grammar_complete(st);
    rg_grammar_stop(st);
    return ok;
}

static void masks_equal_brute_force(void **state)
{
    words w = bytes_and(256, pieces, RG_LEN(pieces)), letters = bytes_and(256, NULL, 0);
    rg_rng r = { .seed = test_seed };
    int ended = 0, all = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_grammar *g = compile(&w, cases[i].kind, cases[i].source), *bytes = compile(&letters, cases[i].kind, cases[i].source);
        for (int k = 0; k < test_scale(10); k++) {
            rg_buf b;
            rg_buf_init(&b, 1 << 20);
            all++;
            if (generate(&w, g, &r, &b, k < 2)) {
                const char *s = b.data ? b.data : "";
                ended++;
                if (!accepts_bytes(bytes, s, b.n))
                    fail_msg("%s produced %s", cases[i].source, s);
                if (!rg_utf8_valid(s, b.n))
                    fail_msg("%s produced no UTF-8: %s", cases[i].source, s);
                if (cases[i].kind == J || cases[i].kind == S) {
                    json_t *v = json_loadb(s, b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
                    if (!v && !strpbrk(s, "eE0123456789")) /* its numbers may be too large for jansson */
                        fail_msg("%s produced no JSON: %s", cases[i].source, s);
                    json_decref(v);
                }
            }
            rg_buf_fini(&b);
        }
        rg_grammar_unref(g);
        rg_grammar_unref(bytes);
    }
    assert_true(ended * 10 > all * 9);
    free_words(&w);
    free_words(&letters);
}

/* Random vocabularies of pieces of what the grammar accepts, without the single bytes of characters beyond ASCII. */
static void odd_vocabularies(void **state)
{
    static const char *const some[] = { "é", "é日", "日\"", "a", "\":\"é", "b\xc3", "\xa9" };
    words ascii = bytes_and(128, some, RG_LEN(some)), few = { 0 };
    rg_rng r = { .seed = test_seed };
    rg_error err;
    rg_grammar *g = compile(&ascii, S, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":6}");
    rg_buf b;

    (void)state;
    for (int i = 0; i < 30; i++) {
        rg_buf_init(&b, 1 << 20);
        assert_true(generate(&ascii, g, &r, &b, true));
        assert_true(rg_utf8_valid(b.data, b.n));
        rg_buf_fini(&b);
    }
    rg_grammar_unref(g);
    add_word(&few, "a", 1);
    add_word(&few, "bc", 2);
    add_word(&few, "b", 1);
    add_word(&few, "", 0);
    few.v = rg_grammar_vocab_new(few.data, few.offset, few.n, &err);
    assert_ok(few.v, err);
    assert_null(rg_grammar_compile(few.v, &SOURCE(X, "a*cb", 4), &err));
    assert_non_null(strstr(err.text, "vocabulary"));
    assert_null(rg_grammar_compile(few.v, &SOURCE(J, "", 0), &err));
    g = compile(&few, X, "[abc]*|c"); /* of c, nothing is left: nobody could go on after it alone */
    rg_buf_init(&b, 1 << 20);
    generate(&few, g, &r, &b, false);
    rg_buf_fini(&b);
    rg_grammar_unref(g);
    free_words(&ascii);
    free_words(&few);
}

/* Deeper than a state has room for: it is refused, and the answer can still be closed. */
static void deep_answers(void **state)
{
    words w = all_bytes();
    rg_grammar *g = compile(&w, S, "{}");
    rg_grammar_state *st = rg_grammar_start(g, NULL), *copy = rg_grammar_start(g, NULL);
    int depth = 0;

    (void)state;
    while (depth < 100000 && rg_grammar_advance(st, '['))
        depth++;
    assert_in_range(depth, 200, 5000);
    rg_grammar_copy(copy, st);
    for (int i = 0; i < depth; i++)
        assert_true(rg_grammar_advance(copy, ']'));
    assert_true(rg_grammar_complete(copy) && rg_grammar_stuck(copy));
    for (int i = 0; i < depth / 2; i++)
        assert_true(rg_grammar_advance(st, ']'));
    for (int i = 0; i < 100000; i++) /* long is not deep */
        assert_true(rg_grammar_advance(st, i & 1 ? '1' : ','));
    rg_grammar_stop(st);
    rg_grammar_stop(copy);
    rg_grammar_unref(g);
    free_words(&w);
}

static void many_keys(void **state)
{
    words w = all_bytes();
    rg_buf b;
    rg_grammar *g;

    (void)state;
    for (int n = 40; n < 200; n += 80) { /* any order; declared order */
        rg_buf_init(&b, 1 << 20);
        rg_buf_str(&b, "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"k3\"],\"properties\":{");
        for (int i = 0; i < n; i++)
            rg_buf_printf(&b, "%s\"k%d\":{\"type\":\"integer\"}", i ? "," : "", i);
        rg_buf_str(&b, "}}");
        g = compile(&w, S, b.data);
        assert_true(accepts(g, "{\"k1\":1,\"k3\":3,\"k30\":1}"));
        assert_true(accepts(g, "{\"k3\":3}"));
        assert_false(accepts(g, "{\"k1\":1,\"k30\":1}"));
        assert_false(accepts(g, "{\"k3\":1,\"k3\":1}"));
        assert_false(accepts(g, "{\"k3\":1,\"k300\":1}"));
        assert_int_equal(accepts(g, "{\"k30\":1,\"k3\":3}"), n <= 48);
        rg_grammar_unref(g);
        rg_buf_fini(&b);
    }
    free_words(&w);
}

/* ---- side by side, and in the cache ---- */

enum { LITERAL = 9000 }; /* of more places than masks are remembered for */

typedef struct walker {
    const words *w;
    rg_grammar *g;
    const char *text;
    uint64_t masks; /* a hash of all */
} walker;

static void *walk_text(void *arg)
{
    walker *k = arg;
    rg_grammar_state *st = rg_grammar_start(k->g, NULL);
    float *logits = calloc((size_t)k->w->n, sizeof *logits);

    for (const char *p = k->text; *p; p++) {
        memset(logits, 0, (size_t)k->w->n * sizeof *logits);
        rg_grammar_mask(st, logits, k->w->n, NULL, 0, true);
        k->masks = rg_hash(logits, (size_t)k->w->n * sizeof *logits, k->masks);
        RG_ASSERT(rg_grammar_advance(st, (unsigned char)*p));
    }
    free(logits);
    rg_grammar_stop(st);
    return NULL;
}

/* However many make masks at once, and forget them meanwhile, they are those that one alone makes. */
static void threads_make_the_same_masks(void **state)
{
    static const char json[] = "{\"a\":[1,2.5e-3,{\"b\":\"some text\",\"c\":{}}],\"d\":null,\"long\":\"wwwwwwwwwwwwwwww\"}";
    words w = bytes_and(256, pieces, RG_LEN(pieces));
    char literal[LITERAL + 3] = "";

    (void)state;
    for (int i = 0; i < LITERAL; i++)
        literal[i] = (char)('a' + i % 17 % 5);
    for (int kind = 0; kind < 2; kind++) {
        const char *text = kind ? literal : json;
        walker k[5] = { 0 };
        pthread_t t[5];

        for (int i = 0; i < 5; i++) { /* the first alone, and the others together */
            k[i] = (walker){ .w = &w, .text = text, .g = i < 2 ? compile(&w, kind ? X : J, kind ? text : "") : k[1].g };
            if (!i)
                walk_text(&k[i]);
        }
        for (int i = 1; i < 5; i++)
            assert_int_equal(pthread_create(&t[i], NULL, walk_text, &k[i]), 0);
        for (int i = 1; i < 5; i++) {
            pthread_join(t[i], NULL);
            assert_true(k[i].masks == k[0].masks);
        }
        rg_grammar_unref(k[0].g);
        rg_grammar_unref(k[1].g);
    }
    free_words(&w);
}

static rg_grammar *get(rg_grammar_cache *s, rg_grammar_kind kind, const char *source)
{
    rg_error err;
    rg_grammar *g = rg_grammar_cache_get(s, &SOURCE(kind, source, strlen(source)), &err);

    assert_ok(g, err);
    return g;
}

/* What is asked for again is the same one; of what nobody asks for, little stays. */
static void a_cache_keeps_what_is_asked_for(void **state)
{
    words w = all_bytes();
    rg_error err;
    size_t live = rg_mem_count().n_live, least = SIZE_MAX, most = 0;
    rg_grammar_cache *s = rg_grammar_cache_new(w.v, &err);
    rg_grammar *used = get(s, X, "ab"), *g = get(s, J, ""), *never;
    char source[32];

    (void)state;
    rg_grammar_unref(g);
    for (int i = 0; i < 200; i++) {
        rg_grammar *again = get(s, J, "");
        assert_ptr_equal(again, g);
        rg_grammar_unref(again);
        snprintf(source, sizeof source, "[a-z]{%d}", i + 1);
        rg_grammar_unref(get(s, X, source));
        least = i == 99 ? rg_mem_count().live_bytes : least;
        most = rg_mem_count().live_bytes;
    }
    assert_true(most <= least + least / 10);
    assert_true(accepts(used, "ab")); /* who has it keeps it; here it is no more */
    never = get(s, X, "ab");
    assert_ptr_not_equal(never, used);
    rg_grammar_unref(used);
    rg_grammar_unref(never);
    g = get(s, C, "[\"ab\"]");
    never = get(s, X, "[\"ab\"]"); /* the same text, of another kind */
    assert_true(accepts(g, "ab") && !accepts(g, "b") && accepts(never, "b"));
    rg_grammar_unref(g);
    rg_grammar_unref(never);
    assert_null(rg_grammar_cache_get(s, &SOURCE(S, "{\"extends\":{}}", 14), &err));
    assert_non_null(strstr(err.text, "'extends'"));
    rg_grammar_cache_free(s);
    assert_int_equal(rg_mem_count().n_live, live);
    free_words(&w);
}

/* ---- failures ---- */

static int countdown;

static bool fail_at(void *arg, size_t bytes)
{
    (void)arg;
    (void)bytes;
    return countdown-- != 0;
}

static void every_allocation_fails(void **state)
{
    static const int which[] = { 0, 3, 13, 16, 20, 32, 33, 34, 38, 41, 42, 46, 48 };
    words w = all_bytes();

    (void)state;
    for (size_t k = 0; k < RG_LEN(which); k++) {
        const char *s = cases[which[k]].source;
        rg_grammar *g = NULL;
        for (int n = 0; !g; n++) {
            rg_error err = { 0 };
            size_t live = rg_mem_count().n_live;
            countdown = n;
            rg_mem_set_gate(fail_at, NULL);
            g = rg_grammar_compile(w.v, &SOURCE(cases[which[k]].kind, s, strlen(s)), &err);
            rg_mem_set_gate(NULL, NULL);
            if (!g) {
                assert_int_equal(rg_mem_count().n_live, live);
                if (err.code != RG_E_MEMORY && cases[which[k]].kind != S && cases[which[k]].kind != C) /* jansson's say less */
                    fail_msg("%s: %s", s, err.text);
            }
        }
        rg_grammar_state *st = NULL;
        for (int n = 0; !st; n++) {
            countdown = n;
            rg_mem_set_gate(fail_at, NULL);
            st = rg_grammar_start(g, NULL);
            rg_mem_set_gate(NULL, NULL);
        }
        countdown = 0; /* a step allocates nothing */
        rg_mem_set_gate(fail_at, NULL);
        float logits[257] = { 0 };
        rg_grammar_mask(st, logits, 257, NULL, 0, true);
        rg_mem_set_gate(NULL, NULL);
        assert_int_equal(countdown, 0);
        rg_grammar_stop(st);
        rg_grammar_unref(g);
    }
    for (int n = 0, made = 0; !made; n++) {
        size_t live = rg_mem_count().n_live;
        countdown = n;
        rg_mem_set_gate(fail_at, NULL);
        rg_grammar_vocab *v = rg_grammar_vocab_new(w.data, w.offset, w.n, NULL);
        rg_mem_set_gate(NULL, NULL);
        made = v != NULL;
        rg_grammar_vocab_free(v);
        assert_int_equal(rg_mem_count().n_live, live);
    }
    free_words(&w);
}

/* ---- hostile sources: a clear answer soon, the same one again, no leak ---- */

typedef struct hostile {
    words w;
    int n, n_accepted;
    double slowest;
} hostile;

static void attack(hostile *h, rg_grammar_kind kind, const char *s, size_t n)
{
    rg_error err[2] = { { 0 } };
    size_t live = rg_mem_count().n_live;
    uint64_t from = rg_now_ns();
    rg_grammar *g = rg_grammar_compile(h->w.v, &SOURCE(kind, s, n), &err[0]);
    double took = rg_seconds(from, rg_now_ns());

    h->n++;
    h->slowest = took > h->slowest ? took : h->slowest;
    if (took > 5.0) /* a tenth of a second is usual at most; sanitizers and busy machines are slower */
        fail_msg("%.3f s for %.100s", took, s);
    if (g) { /* then it can be followed, in bounded time too */
        rg_grammar_state *st = rg_grammar_start(g, NULL);
        rg_rng r = { .seed = 3 };
        h->n_accepted++;
        from = rg_now_ns();
        for (int i = 0; i < 30; i++) {
            float logits[300] = { 0 };
            rg_grammar_mask(st, logits, h->w.n, NULL, 0, true);
            uint32_t at = rg_rng_below(&r, 256), k;
            for (k = 0; k < 256 && logits[(at + k) % 256] == -INFINITY; k++)
                ;
            if (k == 256 || !rg_grammar_advance(st, (int32_t)((at + k) % 256)))
                break;
        }
        rg_grammar_stop(st);
        rg_grammar_unref(g);
        if (rg_seconds(from, rg_now_ns()) > 15.0)
            fail_msg("slow to follow: %.100s", s);
    } else {
        assert_true(err[0].text[0] && err[0].code);
        assert_null(rg_grammar_compile(h->w.v, &SOURCE(kind, s, n), &err[1]));
        assert_string_equal(err[0].text, err[1].text);
    }
    assert_int_equal(rg_mem_count().n_live, live);
}

/* head, n times middle, then n times tail, and foot. */
static void attack_long(hostile *h, rg_grammar_kind kind, const char *head, const char *middle, const char *core, const char *tail,
    int n)
{
    rg_buf b;

    rg_buf_init(&b, 64 << 20);
    rg_buf_str(&b, head);
    for (int i = 0; i < n; i++)
        rg_buf_str(&b, middle);
    rg_buf_str(&b, core);
    for (int i = 0; i < n; i++)
        rg_buf_str(&b, tail);
    attack(h, kind, b.data, b.n);
    rg_buf_fini(&b);
}

static void attack_list(hostile *h, rg_grammar_kind kind, const char *head, const char *each, const char *foot, int n)
{
    rg_buf b;

    rg_buf_init(&b, 64 << 20);
    rg_buf_str(&b, head);
    for (int i = 0; i < n; i++) {
        if (i)
            rg_buf_str(&b, kind == G ? " | " : ",");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        rg_buf_printf(&b, each, i, i);
#pragma GCC diagnostic pop
    }
    rg_buf_str(&b, foot);
    attack(h, kind, b.data, b.n);
    rg_buf_fini(&b);
}

static void hostile_sources(void **state)
{
    static const int sizes[] = { 99, 1000, 60000 };
    hostile h = { .w = all_bytes() };
    rg_rng r = { .seed = test_seed };

    (void)state;
    for (size_t i = 0; i < RG_LEN(sizes); i++) {
        int n = sizes[i];
        attack_long(&h, X, "", "(", "a", "", n);
        attack_long(&h, X, "", "(", "a", ")", n < 25000 ? n : 25000);
        attack_long(&h, X, "", "(", "a", ")*", n < 20000 ? n : 20000);
        attack_long(&h, X, "", "(", "a", "){2,9}", n < 8000 ? n : 8000);
        attack_long(&h, X, "", "(", "a", "){0,1000000}", n < 4000 ? n : 4000);
        attack_long(&h, X, "a", "|a", "", "", n < 30000 ? n : 30000);
        attack_long(&h, X, "", "a?", "", "a", n < 20000 ? n : 20000);
        attack_long(&h, X, "", "(a|b|ab)*", "", "", n < 7000 ? n : 7000);
        attack_long(&h, X, "", "\\w", "", "", n < 30000 ? n : 30000);
        attack_long(&h, X, "[", "a-z", "]", "", n < 20000 ? n : 20000);
        attack_long(&h, X, "", ")", "", "", n);
        attack_long(&h, X, "", "[", "", "", n);
        attack_long(&h, X, "", ".", "", "", n);
        attack_long(&h, G, "root ::= ", "(", "\"a\"", ")", n);
        attack_long(&h, G, "root ::= ", "\"a\"? ", "", "", n);
        attack_long(&h, G, "root ::= ", "[a-z]* ", "", "", n);
        attack_long(&h, G, "root ::= \"a\"", " | \"a\"", "", "", n);
        attack_long(&h, G, "root ::= \"a\"", " | [a] \"b\"", "", "", n);
        attack_long(&h, G, "root ::= r0\n", "", "r0 ::= \"a\"", "# comment\n", n);
        attack_long(&h, S, "", "{\"items\":", "{}", "}", n);
        attack_long(&h, S, "", "{\"type\":\"array\",\"items\":", "{}", "}", n);
        attack_long(&h, S, "", "{\"properties\":{\"a\":", "{}", "}}", n);
        attack_long(&h, S, "", "{\"anyOf\":[", "{}", "]}", n);
        attack_long(&h, S, "", "{\"allOf\":[", "{}", "]}", n);
        attack_long(&h, S, "", "[", "", "]", n);
        attack_long(&h, C, "", "[", "", "]", n);
        attack_list(&h, S, "{\"anyOf\":[", "{\"const\":\"v%d\"}", "]}", n);
        attack_list(&h, S, "{\"anyOf\":[", "{\"type\":\"object\",\"properties\":{\"p%d\":{\"const\":%d}}}", "]}", n);
        attack_list(&h, S, "{\"oneOf\":[", "{\"const\":%d}", "]}", n);
        attack_list(&h, S, "{\"enum\":[", "\"word number %d\"", "]}", n);
        attack_list(&h, S, "{\"enum\":[", "%d", "]}", n);
        attack_list(&h, S, "{\"allOf\":[", "{\"minimum\":%d}", "]}", n);
        attack_list(&h, S, "{\"type\":\"object\",\"properties\":{", "\"p%d\":{\"type\":\"integer\"}", "}}", n);
        attack_list(&h, S, "{\"type\":\"object\",\"required\":[", "\"p%d\"", "]}", n);
        attack_list(&h, S, "{\"prefixItems\":[", "{\"const\":%d}", "]}", n);
        attack_list(&h, S, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
            "\"d%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d1%d\"}}", "}}", n);
        attack_list(&h, C, "[", "\"choice %d\"", "]", n);
        attack_list(&h, C, "[", "\"%d\"", "]", n);
        attack_list(&h, G, "root ::= ", "[a-z] \"%d\"", "", n);
        attack_list(&h, G, "root ::= ", "\"%d\"", "", n);
    }
    attack_list(&h, S, "{\"enum\":[", "\"%d\"", "]}", 100000);
    attack_list(&h, S, "{\"anyOf\":[", "{\"const\":\"%d\"}", "]}", 100000);
    attack_list(&h, C, "[", "\"%d\"", "]", 100000);
    attack_long(&h, X, "(((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000})", "", "", "", 1);
    attack_long(&h, X, "((a*)*)*((a|a)*)*((a?)*)*(a{0,9}){0,9}b", "", "", "", 1);
    attack_long(&h, X, "(a|aa|aaa|aaaa){0,5000}(a{1,7}){2,600}", "", "", "", 1);
    attack_long(&h, X, "(.*)*(.*)*(.*)*(.*)*x", "", "", "", 1);
    attack_long(&h, S, "{\"type\":\"string\",\"maxLength\":2147483648}", "", "", "", 1);
    attack_long(&h, S, "{\"type\":\"array\",\"maxItems\":2147483648}", "", "", "", 1);
    attack_long(&h, S, "{\"type\":\"array\",\"maxItems\":1e300}", "", "", "", 1);
    attack_long(&h, S, "{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}", "", "", "", 1);
    attack_long(&h, S, "{\"type\":\"number\",\"minimum\":1e-300}", "", "", "", 1);
    attack_long(&h, S, "{\"type\":\"number\",\"minimum\":123456789.123456789,\"maximum\":123456789.12345679}", "", "", "", 1);
    for (size_t i = 0; i < RG_LEN(cases); i++) /* cut and bent */
        for (int k = 0; k < test_scale(20); k++) {
            char text[1024];
            size_t n = strlen(cases[i].source), cut;
            assert_true(n < sizeof text);
            memcpy(text, cases[i].source, n + 1);
            cut = rg_rng_below(&r, (uint32_t)n + 1);
            if (k & 1 && n)
                text[cut % n] = (char)rg_rng_below(&r, 256);
            attack(&h, cases[i].kind, text, k & 1 ? n : cut);
        }
    for (size_t i = 0; i < RG_LEN(refused); i++)
        attack(&h, refused[i].kind, refused[i].source, strlen(refused[i].source));
    assert_true(h.n >= 120);
    print_message("%d sources, %d accepted, the slowest took %.0f ms\n", h.n, h.n_accepted, h.slowest * 1e3);
    free_words(&h.w);
}

/* ---- speed ---- */

static words many_words(int n)
{
    static const char letters[] = "eeeetttaaooiinnsshhrrddlluucmfwypvbgkjxqz";
    words w = { 0 };
    rg_rng r = { .seed = 7 };
    rg_error err;

    for (int i = 0; i < 256; i++)
        add_word(&w, &(char){ (char)i }, 1);
    for (size_t i = 0; i < RG_LEN(pieces); i++)
        add_word(&w, pieces[i], strlen(pieces[i]));
    while (w.n < n - 1) {
        char s[16];
        uint32_t k = 1 + rg_rng_below(&r, 3) + rg_rng_below(&r, 4) + rg_rng_below(&r, 4), m = 0;
        if (rg_rng_below(&r, 2))
            s[m++] = ' ';
        for (uint32_t i = 0; i < k; i++)
            s[m++] = rg_rng_below(&r, 12) ? letters[rg_rng_below(&r, sizeof letters - 1)] : (char)(' ' + rg_rng_below(&r, 95));
        add_word(&w, s, m);
    }
    add_word(&w, "", 0);
    uint64_t from = rg_now_ns();
    w.v = rg_grammar_vocab_new(w.data, w.offset, w.n, &err);
    assert_ok(w.v, err);
    printf("vocabulary of %d words: %.0f ms\n", w.n, rg_seconds(from, rg_now_ns()) * 1e3);
    return w;
}

static void bench_one(const words *w, rg_grammar_kind kind, const char *source)
{
    static float logits[1 << 18];
    rg_grammar *g = compile(w, kind, source);
    double first = 0, warm = 0, advance = 0, slowest = 0;
    int n_first = 0, n_warm = 0;

    for (int turn = 0; turn < 20; turn++) {
        rg_rng r = { .seed = (uint64_t)(turn / 2) }; /* the second time all is known */
        rg_grammar_state *st = rg_grammar_start(g, NULL);
        int32_t end = w->n - 1;
        for (int step = 0; step < 200; step++) {
            int32_t best = -1;
            memset(logits, 0, (size_t)w->n * sizeof *logits);
            uint64_t t0 = rg_now_ns();
            rg_grammar_mask(st, logits, w->n, &end, 1, true);
            uint64_t t1 = rg_now_ns();
            double took = rg_seconds(t0, t1);
            if (turn & 1)
                warm += took, n_warm++;
            else
                first += took, n_first++, slowest = took > slowest ? took : slowest;
            for (int32_t at = (int32_t)rg_rng_below(&r, (uint32_t)w->n), i = 0; i < w->n && best < 0; i++, at = (at + 1) % w->n)
                if (logits[at] != -INFINITY)
                    best = at;
            if (best == end || best < 0)
                break;
            t0 = rg_now_ns();
            assert_true(rg_grammar_advance(st, best));
            advance += rg_seconds(t0, rg_now_ns());
        }
        rg_grammar_stop(st);
    }
    printf("%-60.60s first %7.1f us (slowest %7.0f)  warm %6.1f us  advance %5.2f us\n", source[0] ? source : "any object",
        first / n_first * 1e6,
           slowest * 1e6, warm / n_warm * 1e6, advance / (n_first + n_warm) * 1e6);
    rg_grammar_unref(g);
}

static int bench(void)
{
    words w = many_words(128000);

    bench_one(&w, J, "");
    bench_one(&w, S, "{\"type\":\"array\",\"items\":" OBJECT3 ",\"required\":[\"a\",\"b\"]}}");
    bench_one(&w, S, "{\"type\":\"array\",\"items\":" OBJECT3 ",\"additionalProperties\":false}}");
    bench_one(&w, S, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":100}}");
    bench_one(&w, S, "{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]+( [a-z]+)*$\"}");
    bench_one(&w, X, "(\\w+ )*\\d{3}-\\d{4}");
    bench_one(&w, X, ".*");
    bench_one(&w, X, "(a|e|[a-z]|ab|[a-z ]{2}){0,5000}([a-z ]{1,7}){2,600}");
    bench_one(&w, X, "(.*)*(.*)*(.*)*(.*)*x");
    bench_one(&w, X, "((([a-z ]{0,1000}){0,1000}){0,1000}){0,1000}.");
    bench_one(&w, G, "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"");
    free_words(&w);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructs),         cmocka_unit_test(named),        cmocka_unit_test(masks_equal_brute_force),
        cmocka_unit_test(odd_vocabularies),   cmocka_unit_test(deep_answers), cmocka_unit_test(many_keys),
        cmocka_unit_test(threads_make_the_same_masks),
        cmocka_unit_test(a_cache_keeps_what_is_asked_for), cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(hostile_sources),
    };

    if (argc > 1 && !strcmp(argv[1], "--bench"))
        return bench();
    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
