"""Read ridge.h and write what the package needs of it: python generate.py ridge.h OUT.

OUT/_header.py: constants, structs and prototypes, for ctypes.  OUT/layout.c: a C file that only compiles if the compiler
gives every struct of ridge.h the size, and every member the place, that ctypes gives it; the build of the wheel
compiles it.  So the package's structs are those of the header, or there is no wheel.

The header is plain C; the script knows the forms that it uses and refuses what it does not know."""
import ast
import ctypes
import os
import re
import sys

NUMBERS = {"bool": "c_bool", "char": "c_char", "float": "c_float", "double": "c_double", "int": "c_int", "unsigned": "c_uint",
           "size_t": "c_size_t", "uint8_t": "c_uint8", "int32_t": "c_int32", "int64_t": "c_int64", "uint64_t": "c_uint64"}
CALLBACK = re.compile(r"(?P<result>[\w ]+?\**)\s*\(\*(?P<name>\w+)\)\((?P<arguments>[^()]*)\)")


class Refused(Exception):
    pass


class Header:
    """What ridge.h declares, in its order."""

    def __init__(self, text):
        self.version = re.search(r'#define RG_VERSION "([^"]+)"', text)[1]
        plain = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        self.limits = {name: float(value) for name, value in
                       re.findall(r"#define (RG_\w+) \(?(-?[\d.]+(?:e-?\d+)?)\)?[ \t]*$", plain, re.M)}
        plain = re.sub(r"#(?:.*\\\n)*.*", "", plain)
        self.constants = {}  # name -> value
        self.enums = {}      # name -> {member: value}
        self.structs = {}    # name -> [(member, type)]; None: the header only names it
        self.functions = {}  # name -> (result, [arguments])
        self.lines = []      # of the Python file
        for statement in self.statements(plain.replace('extern "C" {', "")):
            self.read(" ".join(statement.split()))

    @staticmethod
    def statements(text):
        depth, start = 0, 0
        for i, c in enumerate(text):
            depth += (c == "{") - (c == "}")
            if c == ";" and depth == 0:
                yield text[start:i]
                start = i + 1

    def read(self, s):
        enum = re.fullmatch(r"(?:typedef )?enum ?(\w*) ?\{(.*)\} ?(\w*)", s)
        struct = re.fullmatch(r"typedef struct (\w+) \{(.*)\} \1", s)
        opaque = re.fullmatch(r"typedef struct (\w+) \1", s)
        callback = re.fullmatch(r"typedef " + CALLBACK.pattern, s)
        function = re.fullmatch(r"RG_API (.+?)(\w+)\((.*)\)", s)
        if enum:
            self.read_enum(enum[3], enum[2])
        elif struct:
            self.structs[struct[1]] = members = [m for line in struct[2].split(";") if line.strip() for m in self.members(line.strip())]
            self.lines.append(f"class {struct[1]}(Structure):\n    _fields_ = [" +
                              ",\n                ".join(f'("{name}", {kind})' for name, kind in members) + "]\n")
        elif opaque:
            self.structs[opaque[1]] = None
        elif callback:
            self.lines.append(f"{callback['name']} = {self.callback(callback)}\n")
            self.enums[callback["name"]] = None
        elif function:
            arguments = [] if function[3] == "void" else [self.argument(a.strip()) for a in function[3].split(",")]
            result = self.kind(function[1].strip(), "")
            if result == "c_char_p" and "POINTER(c_size_t)" in arguments:
                result = "c_void_p"  # its length is told, since there may be zeros in it
            self.functions[function[2]] = (result, arguments)
        else:
            raise Refused(f"ridge.h: not understood: {s[:100]}")

    def read_enum(self, name, body):
        value, values = -1, {}
        for item in filter(None, (x.strip() for x in body.split(","))):
            word, _, given = (x.strip() for x in item.partition("="))
            value = int(given, 0) if given else value + 1
            values[word] = value
        self.constants.update(values)
        if name:
            self.enums[name] = values

    def members(self, line):
        found = CALLBACK.fullmatch(line)
        if found:
            return [(found["name"], self.callback(found))]
        base, first, rest = re.fullmatch(r"((?:const )?(?:struct )?\w+)\s*(.*?)(?:,(.*))?", line).groups()
        names = [first] + [x.strip() for x in (rest or "").split(",") if x.strip()]
        return [(re.search(r"(\w+)(\[\w+\])?$", n)[1], self.kind(base, n)) for n in names]

    def argument(self, text):
        """A parameter: its name is left out, and an array is a pointer."""
        text = re.sub(r"(\w+)\[\d*\]$", r"*\1", text)
        base, rest = re.fullmatch(r"((?:const )?(?:struct )?\w+)\s*(.*)", text).groups()
        return self.kind(base, rest)

    def callback(self, found):
        result = self.kind(found["result"], "")
        return f"CFUNCTYPE({', '.join([result] + [self.argument(a.strip()) for a in found['arguments'].split(',')])})"

    def kind(self, base, declarator):
        """The ctypes type, as an expression."""
        words = base.replace("*", " * ").split()
        name = [w for w in words if w not in ("const", "struct", "*")][0]
        stars = words.count("*") + declarator.count("*")
        count = re.search(r"\[(\w+)\]$", declarator)
        if name in NUMBERS:
            kind = NUMBERS[name]
        elif name == "void":
            kind = "None"
        elif self.enums.get(name, {}) != {}:
            kind = "c_int" if self.enums[name] else name
        elif name in self.enums:
            kind = name
        elif self.structs.get(name):
            kind = name
        elif name in self.structs or name.startswith("rg_"):  # only its address is known; or its own, inside it
            kind, stars = "c_void_p", stars - 1
        else:
            raise Refused(f"ridge.h: no such type: {base} {declarator}")
        if name in ("char", "void") and stars:  # what the caller has to free is no c_char_p, of which Python makes a copy
            kind, stars = ("c_char_p" if name == "char" and words[0] == "const" else "c_void_p"), stars - 1
        for _ in range(stars):
            kind = f"POINTER({kind})"
        return f"{kind} * {int(self.constants.get(count[1], 0)) or int(count[1])}" if count else kind

    def python(self):
        out = ['"""Made from ridge.h by generate.py: its constants, structs and functions."""',
               "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,",
               "                    c_int64, c_size_t, c_uint, c_uint8, c_uint64, c_void_p)", "", f'VERSION = "{self.version}"', ""]
        out += [f"{name} = {value}" for name, value in self.constants.items()]
        out += [f"{name} = {value!r}" for name, value in self.limits.items()] + [""]
        out += self.lines
        out += ["STRUCTS = [" + ", ".join(n for n, members in self.structs.items() if members) + "]", "FUNCTIONS = {"]
        out += [f'    "{name}": ({result}, [{", ".join(arguments)}]),' for name, (result, arguments) in self.functions.items()]
        return "\n".join(out + ["}", ""])

    def check(self, module):
        """C that compiles where the compiler lays structs out as ctypes does."""
        out = ["/* Made from ridge.h by generate.py: compiles if ctypes and the compiler lay structs out alike. */",
               "#include <ridge.h>", ""]
        for name, members in self.structs.items():
            for member, _ in members or []:
                field = getattr(getattr(module, name), member)
                out.append(f"_Static_assert(offsetof({name}, {member}) == {field.offset}, \"{name}.{member} stands elsewhere\");")
                out.append(f"_Static_assert(sizeof((({name} *)0)->{member}) == {field.size}, \"{name}.{member} has another size\");")
            if members:
                out.append(f"_Static_assert(sizeof({name}) == {ctypes.sizeof(getattr(module, name))}, \"{name} has another size\");")
        out += [f"_Static_assert({name} == {value}, \"{name} has another value\");" for name, value in self.constants.items()]
        return "\n".join(out + [""])


RESULTS = {"Usage": ("rg_usage", set()), "Info": ("rg_info", {"n_eos", "n_embed_sizes"})}  # and members that lists stand for


def check_results(read):
    """The classes of results.py that are made from whole structs have their members."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ridge", "results.py"), encoding="utf-8") as f:
        classes = {c.name: {m.target.id for m in c.body if isinstance(m, ast.AnnAssign)} for c in ast.parse(f.read()).body
                   if isinstance(c, ast.ClassDef)}
    for name, (struct, without) in RESULTS.items():
        other = classes[name] ^ ({member for member, _ in read.structs[struct]} - without)
        if other:
            raise Refused(f"results.py: {name} and {struct} differ in {', '.join(sorted(other))}")


def main(header, folder):
    with open(header, encoding="utf-8") as f:
        read = Header(f.read())
    check_results(read)
    names = {}
    exec(compile(read.python(), "_header.py", "exec"), names)
    for name, text in (("_header.py", read.python()), ("layout.c", read.check(type("module", (), names)))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
