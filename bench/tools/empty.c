/*
 * empty: a library with nothing in it. Beside the one that announces, it shows what the loader takes for any preloaded library.
 */
typedef int nothing;
