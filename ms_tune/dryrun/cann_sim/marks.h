/* Files that tell of this process, each named by its number: kill(2) lets nobody write one at the end.
 *
 * Like the stand-ins plain C without headers; the functions of the C library are found in the process.
 */
extern char *getenv(const char *);
extern int getpid(void), mkdir(const char *, unsigned), creat(const char *, unsigned), close(int), unlink(const char *),
    rmdir(const char *);
extern long write(int, const void *, unsigned long);

enum { LONGEST = 4096, DIGITS = 12 };

/* The folder that a variable names, with `below` behind it, at the start of `path`; its length, 0 if there is none. */
static int folder_of(char *path, const char *variable, const char *below) {
  const char *parts[] = {getenv(variable), below};
  int length = 0;
  if (!parts[0] || !*parts[0]) return 0;
  for (int part = 0; part < 2; ++part)
    for (const char *at = parts[part]; *at; ++at) {
      if (length == LONGEST - DIGITS) return 0;
      path[length++] = *at;
    }
  path[length] = 0;
  return length;
}

static int digits_of(char *at, unsigned number) {
  char digits[DIGITS];
  int count = 0, length = 0;
  do digits[count++] = '0' + number % 10; while (number /= 10);
  while (count) at[length++] = digits[--count];
  return length;
}

static void name_own(char *path, int length) {
  path[length++] = '/';
  path[length + digits_of(path + length, getpid())] = 0;
}

/* With a number in it, if there is one. */
static void mark_with(const char *variable, const char *below, unsigned number) {
  char path[LONGEST], digits[DIGITS];
  int length = folder_of(path, variable, below);
  if (!length) return;
  /* Another process, the last of its folder, may be taking that away. */
  for (int file = -1, tries = 0; file < 0 && tries < 9; ++tries) {
    path[length] = 0;
    mkdir(path, 0755);
    name_own(path, length);
    file = creat(path, 0644);
    if (file < 0) continue;
    if (number) write(file, digits, digits_of(digits, number));
    close(file);
  }
}

static void mark(const char *variable, const char *below) { mark_with(variable, below, 0); }

__attribute__((unused)) static void unmark(const char *variable, const char *below) {
  char path[LONGEST];
  int length = folder_of(path, variable, below);
  if (!length) return;
  name_own(path, length);
  unlink(path);
  path[length] = 0;
  rmdir(path); /* of the last one; refused where there are others */
}
