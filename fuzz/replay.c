/* replay.c -- a fuzzer's kept inputs, one after the other, without libFuzzer: what gates in `make test`. */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

static int replay_file(const char *path)
{
    static uint8_t data[1 << 20];
    FILE *f = fopen(path, "rb");

    if (!f) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        exit(1);
    }
    const size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* its end is checked */
    if (!exact)
        abort();
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 1;
}

int main(int argc, char **argv)
{
    int n = 0;

    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            n += replay_file(argv[i]);
            continue;
        }
        for (struct dirent *e; (e = readdir(d));) {
            char path[600];
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (e->d_name[0] != '.')
                n += replay_file(path);
        }
        closedir(d);
    }
    printf("%d inputs\n", n);
    return n ? 0 : 1;
}
