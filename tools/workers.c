// workers.c - see workers.h.
#include "workers.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "output.h"

int workers_start(const struct options *options, struct worker *worker) {
    char **argv = output_realloc(NULL, ((size_t)options->argc + 2) * sizeof(*argv));
    memcpy(argv, options->argv, (size_t)options->argc * sizeof(*argv));
    argv[options->argc] = (char[]){"--worker"};
    argv[options->argc + 1] = NULL;
    const int fault = worker_start("/proc/self/exe", argv, worker);
    free(argv);
    if (fault) output_error("cannot start a process: %s", strerror(fault));
    return fault ? CODE_FAILURE : CODE_OK;
}

struct member {
    struct worker worker;
    bool busy;
    size_t index;  // of the text it works on
};

struct crew {
    const struct options *options;
    char *const *texts;
    size_t count, next;
    workers_report report;
    void *user;
};

static void give(struct crew *crew, struct member *member) {
    if (crew->next >= crew->count || command_interrupted()) return;
    member->index = crew->next++;
    member->busy = true;
    worker_tell(&member->worker, crew->texts[member->index]);
}

// A process that ended instead of answering costs the text it had, and another takes its place.
static int take(struct crew *crew, struct member *member) {
    int code;
    struct buf sentence = {.data = NULL};
    const enum worker_answer answer = worker_hear(&member->worker, 0, &code, &sentence);
    crew->report(member->index, code == WORKER_FAILED ? CODE_FAILURE : code, buf_string(&sentence), crew->user);
    member->busy = false;
    buf_free(&sentence);
    return answer != WORKER_ANSWERED && crew->next < crew->count ? workers_start(crew->options, &member->worker)
                                                                 : CODE_OK;
}

// False when nobody works any more.
static bool wait_for_answers(struct crew *crew, struct member *members, size_t count, int *code) {
    struct pollfd *polls = output_realloc(NULL, (count + 1) * sizeof(*polls));
    size_t busy = 0;
    for (size_t i = 0; i < count; i++) {
        polls[i] = (struct pollfd){.fd = members[i].busy ? fileno(members[i].worker.from) : -1, .events = POLLIN};
        busy += members[i].busy;
    }
    if (busy && poll(polls, count, -1) > 0) {
        for (size_t i = 0; i < count && !*code; i++) {
            if (polls[i].revents) *code = take(crew, &members[i]);
        }
    }
    free(polls);
    return busy > 0;
}

int workers_run(const struct options *options, char *const *texts, size_t count, workers_report report, void *user) {
    struct crew crew = {options, texts, count, 0, report, user};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t size = options->jobs ? (size_t)options->jobs : cores > 0 ? (size_t)cores : 1;
    if (size > count) size = count;
    struct member *members = output_realloc(NULL, (size + 1) * sizeof(*members));
    int code = CODE_OK;
    size_t started = 0;
    for (; started < size && !code; started++) {
        members[started] = (struct member){.busy = false};
        code = workers_start(options, &members[started].worker);
    }
    while (!code) {
        for (size_t i = 0; i < started; i++) {
            if (!members[i].busy && members[i].worker.process > 0) give(&crew, &members[i]);
        }
        if (!wait_for_answers(&crew, members, started, &code)) break;
    }
    for (size_t i = 0; i < started; i++) worker_stop(&members[i].worker);
    free(members);
    return code;
}
