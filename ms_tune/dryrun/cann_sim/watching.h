/* What takes the place of functions of MindSpore's own (child/hook/runtime.py), whose names REPORTS and SET_DEVICE are. */
#include <poll.h>

#define VISIBLE __attribute__((visibility("default")))

enum { WAIT_MILLISECONDS = 10, MOST_WAITS = 100, GETTID = 186, EXIT_THREAD = 60 };

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
extern int on_exit(void (*)(int, void *), void *);
extern long syscall(long, ...);
extern int pthread_key_create(unsigned *, void (*)(void *)), pthread_setspecific(unsigned, const void *);
extern void *pthread_getspecific(unsigned);
extern int Py_AddPendingCall(int (*)(void *), void *) __attribute__((weak));
extern int Py_IsInitialized(void) __attribute__((weak));

static int marked; /* the last process that used the device: this one, or one that it comes from */

/* Threads that ask for news, and the process that they are in: one that it forks has none of them. */
static int asking, asking_in;
static unsigned known; /* to each of these threads alone, see pthread_key_create(3) */
static volatile int ending;

static void leave(void *nothing) {
  (void)nothing;
  __sync_fetch_and_sub(&asking, 1);
}

/* Takes its time, as CANN's does. At the end of the process the thread ends here, whatever MindSpore's destructors (2.9) are still to
 * take away: without that, one in a dozen short programs ended in a crash. Who joins it finds it ended. */
VISIBLE int REPORTS(int timeout) {
  (void)timeout;
  if (!pthread_getspecific(known)) {
    pthread_setspecific(known, &known);
    if (asking_in != getpid()) asking = 0, asking_in = getpid();
    __sync_fetch_and_add(&asking, 1);
  }
  poll(0, 0, WAIT_MILLISECONDS);
  if (ending && syscall(GETTID) != getpid()) {
    leave(0);
    syscall(EXIT_THREAD, 0);
  }
  return 0;
}

/* To be called when Python has nothing more to do, and before C's own functions at exit. */
VISIBLE void ms_tune_end_reports(void) {
  int own = pthread_getspecific(known) != 0;
  ending = 1;
  for (int waits = 0; waits < MOST_WAITS && asking_in == getpid() && asking > own; ++waits) poll(0, 0, WAIT_MILLISECONDS);
}

/* Marks each process that uses the device, once: forked ones, too. */
VISIBLE int SET_DEVICE(int device) {
  (void)device;
  if (marked != getpid()) mark("MS_TUNE_USES", "");
  marked = getpid();
  return 0;
}

/* The status of a process that ends by itself and failed, which Python's functions at exit are not told: a worker of
 * multiprocessing and one that calls sys.exit may fail without anybody asking. */
static void note_status(int status, void *nothing) {
  (void)nothing;
  if (status) mark_with("MS_TUNE_USES", "_failed", status & 255);
}

__attribute__((constructor)) static void begin(void) {
  on_exit(note_status, 0);
  pthread_key_create(&known, leave);
}

/* Forks. Python looks after its own, and sets ms_tune_python_forks for them. One that a library makes calls `back` as soon as it is
 * in Python again, and never if it becomes another program before. Python does so in its main thread only: what another thread
 * forks, and could use a device that is in use, is marked at once. Nothing is asked of a Python that ends or has ended. */
VISIBLE volatile int ms_tune_python_forks;
static int (*back)(void *);
static int elsewhere; /* this process's one thread is not Python's main one */
static int from_elsewhere;

static void before_fork(void) { from_elsewhere = elsewhere || syscall(GETTID) != getpid(); }

static void in_child(void) {
  elsewhere = from_elsewhere && !ms_tune_python_forks;
  if (ms_tune_python_forks || !Py_IsInitialized()) return;
  if (!elsewhere)
    Py_AddPendingCall(back, 0);
  else if (marked) {
    mark("MS_TUNE_USES", "");
    marked = getpid();
  }
}

VISIBLE void ms_tune_tell_forked(int (*tell)(void *)) {
  if (!Py_AddPendingCall || !Py_IsInitialized || back) return;
  back = tell;
  __register_atfork(before_fork, 0, in_child, 0);
}
