// planted.cpp - see planted.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "machine.h"
#include "planted.h"

namespace {

constexpr rlim_t LONGEST = 10;    // seconds of a core for a fault
constexpr int IDLEST = 20000000;  // turns of a loop without accesses

enum State : unsigned char { OFF, ON, AWAITED };
std::vector<State> states;
size_t awaited;

void read_list() {
    const char *list = getenv("PLANTED");
    states.assign(1, OFF);
    for (char *end; list && *list; list = end) {
        const size_t fault = strtoul(list, &end, 10);
        if (end == list) break;
        if (fault >= states.size()) states.resize(fault + 1, OFF);
        awaited += states[fault] == OFF;
        states[fault] = AWAITED;
    }
}

// True in the child.
bool run_alone(size_t fault) {
    printf("PLANTED %zu\n", fault);
    fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        perror("fork");
        _exit(2);
    }
    if (child == 0) {
        const rlimit limit = {LONGEST, RLIM_INFINITY};
        setrlimit(RLIMIT_CPU, &limit);
        states.assign(states.size(), OFF);
        states[fault] = ON;
        return true;
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("ENDED %zu signal %d\n", fault, WTERMSIG(status));
    else
        printf("ENDED %zu %d\n", fault, WEXITSTATUS(status));
    fflush(nullptr);
    states[fault] = OFF;
    if (--awaited == 0) _exit(0);
    return false;
}

}  // namespace

namespace sim {

bool is_planted(int fault) {
    if (states.empty()) read_list();
    const size_t i = static_cast<size_t>(fault);
    const State state = i < states.size() ? states[i] : OFF;
    static u64 accesses;
    static int idle;
    idle = accesses == stack.accesses ? idle + 1 : 0;
    accesses = stack.accesses;
    if (idle > IDLEST) endless(__builtin_return_address(0));
    return state == ON || (state == AWAITED && run_alone(i));
}

}  // namespace sim
