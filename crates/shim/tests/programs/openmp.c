// Each of its threads writes a file, and all of them one together.
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    int all = open("all", O_WRONLY | O_CREAT, 0644);
#pragma omp parallel for num_threads(4)
    for (int number = 0; number < 16; number++) {
        char path[40];
        snprintf(path, sizeof path, "n%d", number);
        FILE *file = fopen(path, "w");
        fputs("x", file), fclose(file);
        pwrite(all, "x", 1, number);
    }
    return close(all);
}
