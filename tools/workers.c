// workers.c - see workers.h. Protocol: the parent writes "TEXT\n", the child answers "CODE SIZE\n" and SIZE bytes of sentence.
#include "workers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "output.h"

extern char **environ;

// ---- a process -------------------------------------------------------------------------------------------------------

struct worker {
    pid_t process;  // 0: none
    FILE *to, *from;
    bool busy;
    size_t index;  // of the text it works on
};

struct crew {
    const struct options *options;
    char *const *texts;
    size_t count, next, done;
    workers_report report;
    void *user;
};

// This program with its own command line and --worker; to[0] becomes its stdin, from[1] its stdout.
static int spawn(const struct options *options, const int to[2], const int from[2], pid_t *process) {
    char **argv = output_realloc(NULL, ((size_t)options->argc + 2) * sizeof(*argv));
    memcpy(argv, options->argv, (size_t)options->argc * sizeof(*argv));
    argv[options->argc] = (char[]){"--worker"};
    argv[options->argc + 1] = NULL;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    const int fault = posix_spawn(process, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(argv);
    return fault;
}

static int start(const struct options *options, struct worker *worker) {
    int to[2], from[2], fault = 0;
    *worker = (struct worker){.process = 0};
    if (pipe2(to, O_CLOEXEC)) fault = errno;
    if (!fault && pipe2(from, O_CLOEXEC)) {
        fault = errno;
        close(to[0]);
        close(to[1]);
    }
    if (!fault) {
        fault = spawn(options, to, from, &worker->process);
        close(to[0]);
        close(from[1]);
        worker->to = fdopen(to[1], "w");
        worker->from = fdopen(from[0], "r");
        if (!worker->to || !worker->from) fault = ENOMEM;
    }
    if (!fault) return CODE_OK;
    output_error("cannot start a process: %s", strerror(fault));
    return CODE_FAILURE;
}

// Closes its pipes, which ends it, and waits. The status of waitpid.
static int stop(struct worker *worker) {
    int status = 0;
    if (worker->to) fclose(worker->to);
    if (worker->from) fclose(worker->from);
    while (worker->process > 0 && waitpid(worker->process, &status, 0) < 0 && errno == EINTR) {
    }
    *worker = (struct worker){.process = 0};
    return status;
}

// ---- handing out -----------------------------------------------------------------------------------------------------

static void give(struct crew *crew, struct worker *worker) {
    if (crew->next >= crew->count || command_interrupted()) return;
    worker->index = crew->next++;
    worker->busy = true;
    fprintf(worker->to, "%s\n", crew->texts[worker->index]);
    fflush(worker->to);  // a process that is gone is noticed when its answer is read
}

static void take(struct crew *crew, struct worker *worker, int code, const char *sentence) {
    crew->report(worker->index, code, sentence, crew->user);
    crew->done++;
    worker->busy = false;
}

// Reads an answer. A process that ended instead costs the text it had, and another takes its place.
static int answer(struct crew *crew, struct worker *worker) {
    int code;
    size_t size;
    char *sentence = NULL;
    // What is read was written by this program. NOLINTNEXTLINE(cert-err34-c)
    bool whole = fscanf(worker->from, "%d %zu", &code, &size) == 2 && fgetc(worker->from) == '\n' && size < 1u << 20;
    if (whole) {
        sentence = output_realloc(NULL, size + 1);
        whole = fread(sentence, 1, size, worker->from) == size;
        sentence[size] = 0;
    }
    if (whole) {
        take(crew, worker, code, sentence);
        free(sentence);
        return CODE_OK;
    }
    free(sentence);
    char text[96];
    const size_t index = worker->index;
    const int status = stop(worker);
    snprintf(text, sizeof(text), "the process that worked on it ended with %s %d",
             WIFSIGNALED(status) ? "signal" : "exit code",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    worker->index = index;
    take(crew, worker, CODE_FAILURE, text);
    return crew->next < crew->count ? start(crew->options, worker) : CODE_OK;
}

static int wait_for_answers(struct crew *crew, struct worker *workers, size_t count) {
    struct pollfd *polls = output_realloc(NULL, count * sizeof(*polls));
    size_t busy = 0;
    int code = CODE_OK;
    for (size_t i = 0; i < count; i++) {
        polls[i] = (struct pollfd){.fd = workers[i].busy ? fileno(workers[i].from) : -1, .events = POLLIN};
        busy += workers[i].busy;
    }
    if (busy && poll(polls, count, -1) > 0) {
        for (size_t i = 0; i < count && !code; i++) {
            if (polls[i].revents) code = answer(crew, &workers[i]);
        }
    }
    free(polls);
    return code;
}

static bool any_busy(const struct worker *workers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (workers[i].busy) return true;
    }
    return false;
}

int workers_run(const struct options *options, char *const *texts, size_t count, workers_report report, void *user) {
    struct crew crew = {options, texts, count, 0, 0, report, user};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t size = options->jobs ? (size_t)options->jobs : cores > 0 ? (size_t)cores : 1;
    if (size > count) size = count;
    struct worker *workers = output_realloc(NULL, (size + 1) * sizeof(*workers));
    int code = CODE_OK;
    size_t started = 0;
    signal(SIGPIPE, SIG_IGN);
    for (; started < size && !code; started++) code = start(options, &workers[started]);
    while (!code) {
        for (size_t i = 0; i < started; i++) {
            if (!workers[i].busy && workers[i].process > 0) give(&crew, &workers[i]);
        }
        if (!any_busy(workers, started)) break;
        code = wait_for_answers(&crew, workers, started);
    }
    for (size_t i = 0; i < started; i++) stop(&workers[i]);
    free(workers);
    return code;
}

// ---- the child -------------------------------------------------------------------------------------------------------

int workers_serve(int (*work)(const char *text, void *user), void *user) {
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        const int code = work(line, user);
        const char *sentence = code ? vf_last_error() : "";
        printf("%d %zu\n%s", code, strlen(sentence), sentence);
        fflush(stdout);
    }
    free(line);
    return CODE_OK;
}
