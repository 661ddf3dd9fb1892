// Two processes and their threads write: each thread a file, and all one together.
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
int main(int count, char **words) {
    int rank;
    MPI_Init(&count, &words), MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#pragma omp parallel num_threads(3)
    {
        char path[40];
        snprintf(path, sizeof path, "n%d.%d", rank, omp_get_thread_num());
        FILE *file = fopen(path, "w");
        fputs("x", file), fclose(file);
    }
    MPI_File all;
    MPI_File_open(MPI_COMM_WORLD, "all", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &all);
    MPI_File_write_at_all(all, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE), MPI_File_close(&all);
    return MPI_Finalize();
}
