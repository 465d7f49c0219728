// worker.c - see worker.h. Protocol: "TEXT\n" one way, "CODE SIZE\n" and SIZE bytes the other.
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "varflash/varflash.h"

#define LONGEST_ANSWER ((size_t)1 << 24)

extern char **environ;

// ---- starting and ending ---------------------------------------------------------------------------------------------

// to[0] becomes its stdin, from[1] its stdout.
static int spawn(const char *path, char *const *argv, const int to[2], const int from[2], pid_t *process) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    const int fault = posix_spawn(process, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return fault;
}

int worker_start(const char *path, char *const *argv, struct worker *worker) {
    int to[2], from[2], fault = 0;
    *worker = (struct worker){.process = 0};
    signal(SIGPIPE, SIG_IGN);  // who is gone is noticed when an answer is missing
    if (pipe2(to, O_CLOEXEC)) fault = errno;
    if (!fault && pipe2(from, O_CLOEXEC)) {
        fault = errno;
        close(to[0]);
        close(to[1]);
    }
    if (!fault) {
        fault = spawn(path, argv, to, from, &worker->process);
        close(to[0]);
        close(from[1]);
        worker->to = fdopen(to[1], "w");
        worker->from = fdopen(from[0], "r");
        if (!worker->to || !worker->from) fault = ENOMEM;
    }
    return fault;
}

int worker_stop(struct worker *worker) {
    int status = 0;
    if (worker->to) fclose(worker->to);
    if (worker->from) fclose(worker->from);
    while (worker->process > 0 && waitpid(worker->process, &status, 0) < 0 && errno == EINTR) {
    }
    *worker = (struct worker){.process = 0};
    return status;
}

// ---- talking ---------------------------------------------------------------------------------------------------------

void worker_tell(struct worker *worker, const char *text) {
    fprintf(worker->to, "%s\n", text);
    fflush(worker->to);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// False after `seconds` of silence. An interrupt does not end the waiting: the process answers it by itself.
static bool wait_for_words(const struct worker *worker, double seconds) {
    struct pollfd file = {.fd = fileno(worker->from), .events = POLLIN};
    const double end = now() + seconds;
    for (;;) {
        const double left = end - now();
        const int ready = poll(&file, 1, seconds > 0 ? (int)(left > 0 ? left * 1e3 : 0) : -1);
        if (ready > 0) return true;
        if (ready == 0 && seconds > 0 && left <= 0) return false;
    }
}

static bool read_answer(struct worker *worker, int *code, struct buf *answer) {
    size_t size;
    // What is read was written by this program. NOLINTNEXTLINE(cert-err34-c)
    if (fscanf(worker->from, "%d %zu", code, &size) != 2 || fgetc(worker->from) != '\n' || size > LONGEST_ANSWER)
        return false;
    char *text = buf_extend(answer, size);
    return text && fread(text, 1, size, worker->from) == size;
}

enum worker_answer worker_hear(struct worker *worker, double seconds, int *code, struct buf *answer) {
    const size_t start = answer->size;
    *code = WORKER_FAILED;
    if (!wait_for_words(worker, seconds)) {
        kill(worker->process, SIGKILL);
        worker_stop(worker);
        buf_printf(answer, "no answer for %.0f s", seconds);
        return WORKER_SILENT;
    }
    if (read_answer(worker, code, answer)) return WORKER_ANSWERED;
    answer->size = start;
    *code = WORKER_FAILED;
    const int status = worker_stop(worker);
    buf_printf(answer, "the process ended with %s %d", WIFSIGNALED(status) ? "signal" : "exit code",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return WORKER_DIED;
}

// ---- the other side --------------------------------------------------------------------------------------------------

void worker_serve(int (*work)(const char *text, struct buf *answer, void *user), void *user) {
    char *line = NULL;
    size_t room = 0;
    struct buf answer = {.data = NULL};
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        buf_clear(&answer);
        const int code = work(line, &answer, user);
        if (code && !answer.size) buf_text(&answer, vf_last_error());
        printf("%d %zu\n%s", code, answer.size, buf_string(&answer));
        fflush(stdout);
    }
    free(line);
    buf_free(&answer);
}
