/* What takes the place of functions of MindSpore's own (child/hook/runtime.py), whose names REPORTS and SET_DEVICE are. */
#include <poll.h>

#define VISIBLE __attribute__((visibility("default")))

enum { WAIT_MILLISECONDS = 10, GETTID = 186 };

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
extern int on_exit(void (*)(int, void *), void *);
extern long syscall(long, ...);
extern int Py_AddPendingCall(int (*)(void *), void *) __attribute__((weak));
extern int Py_IsInitialized(void) __attribute__((weak));

static int marked; /* the last process that used the device: this one, or one that it comes from */

/* Takes its time, as CANN's does. */
VISIBLE int REPORTS(int timeout) {
  (void)timeout;
  poll(0, 0, WAIT_MILLISECONDS);
  return 0;
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

__attribute__((constructor)) static void begin(void) { on_exit(note_status, 0); }

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
