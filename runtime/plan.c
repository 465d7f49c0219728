// plan.c - vf_prepare_* and vf_plan_*: what a call does before its launch, done ahead.
#include <stdlib.h>

#include "context.h"

// What is static in a call. Two calls that agree in it may use one plan.
struct kind {
    struct request request;
    bool q_batched, k_batched;
    int64_t heads_q, heads_k;
};

struct vf_plan {
    struct vf_context *context;
    struct kind kind;
    uint64_t scope_context;  // where `prepared` lives
    struct prepared prepared;
};

static struct kind kind_of(const struct call *call) {
    return (struct kind){call->request, call->q_batched, call->k_batched, call->heads_q, call->heads_k};
}

static vf_status prepare(struct vf_context *context, const struct call *call, struct prepared *prepared,
                         uint64_t *scope_context) {
    *prepared = (struct prepared){.count = 0};
    *scope_context = 0;
    if (context->backend == VF_BACKEND_CPU) return VF_OK;
    struct scope scope;
    VF_TRY(context_enter(context, call, &scope));
    *scope_context = scope.context;
    vf_status status = variants_prepare(context->variants, &call->request, &scope, call->problem->stream, prepared);
    const struct variant *check = NULL;
    if (!status && call->problem->check) {
        status = variants_get_check(context->variants, &scope, call->problem->stream, &check);
    }
    scope_leave(&scope);
    return status;
}

static vf_status validate(struct vf_context *context, const void *args, bool backward, enum validate_pointers pointers,
                          struct call *call) {
    VF_REQUIRE(context, VF_ERROR_INVALID_ARGUMENT, "context: is null");
    const struct validate_rules rules = {.pointers = pointers, .host = context->backend == VF_BACKEND_CPU};
    return backward ? validate_backward(args, &rules, call) : validate_forward(args, &rules, call);
}

static vf_status prepare_args(struct vf_context *context, const void *args, bool backward) {
    struct call call;
    struct prepared prepared;
    uint64_t scope_context = 0;
    VF_TRY(validate(context, args, backward, VALIDATE_GIVEN, &call));
    return prepare(context, &call, &prepared, &scope_context);
}

vf_status vf_prepare_forward(vf_context *context, const vf_forward_args *args) {
    return prepare_args(context, args, false);
}

vf_status vf_prepare_backward(vf_context *context, const vf_backward_args *args) {
    return prepare_args(context, args, true);
}

// ---- plans ---------------------------------------------------------------------------------------------------------

static vf_status create(struct vf_context *context, const void *args, bool backward, vf_plan **out) {
    VF_REQUIRE(out, VF_ERROR_INVALID_ARGUMENT, "plan: is null");
    *out = NULL;
    struct call call;
    VF_TRY(validate(context, args, backward, VALIDATE_GIVEN, &call));
    struct vf_plan *plan = calloc(1, sizeof *plan);
    VF_REQUIRE(plan, VF_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    plan->context = context;
    plan->kind = kind_of(&call);
    const vf_status status = prepare(context, &call, &plan->prepared, &plan->scope_context);
    if (status) {
        free(plan);
        return status;
    }
    *out = plan;
    return VF_OK;
}

vf_status vf_plan_create_forward(vf_context *context, const vf_forward_args *args, vf_plan **plan) {
    return create(context, args, false, plan);
}

vf_status vf_plan_create_backward(vf_context *context, const vf_backward_args *args, vf_plan **plan) {
    return create(context, args, true, plan);
}

void vf_plan_destroy(vf_plan *plan) {
    free(plan);
}

// What a plan was made for and what a call brings must be the same, but that a plan for any alignment serves aligned
// operands.
static vf_status check_kind(const struct kind *plan, const struct kind *call) {
    const struct request *p = &plan->request, *c = &call->request;
    const struct {
        const char *name;
        int64_t plan, call;
    } facts[] = {{"dtype", p->dtype, c->dtype},
                 {"head_dim", p->head_dim, c->head_dim},
                 {"head_dim_v", p->head_dim_v, c->head_dim_v},
                 {"heads_q", plan->heads_q, call->heads_q},
                 {"heads_k", plan->heads_k, call->heads_k},
                 {"mask (normal form)", p->mask, c->mask},
                 {"softcap present", p->softcap, c->softcap},
                 {"deterministic", p->deterministic, c->deterministic},
                 {"q batched", plan->q_batched, call->q_batched},
                 {"k batched", plan->k_batched, call->k_batched},
                 {"operands aligned to 16 bytes", p->aligned, p->aligned && c->aligned},
                 {"operands in reach of tensor maps", p->mapped, p->mapped && c->mapped}};
    for (size_t i = 0; i < ARRAY_LENGTH(facts); i++) {
        VF_REQUIRE(facts[i].plan == facts[i].call, VF_ERROR_INVALID_ARGUMENT,
                   "plan: was made for %s = %lld, the call has %lld", facts[i].name, (long long)facts[i].plan,
                   (long long)facts[i].call);
    }
    return VF_OK;
}

static vf_status launch(const vf_plan *plan, const void *args, bool backward) {
    VF_REQUIRE(plan, VF_ERROR_INVALID_ARGUMENT, "plan: is null");
    VF_REQUIRE(plan->kind.request.backward == backward, VF_ERROR_INVALID_ARGUMENT, "plan: was made for the %s",
               backward ? "forward" : "backward");
    struct call call;
    VF_TRY(validate(plan->context, args, backward, VALIDATE_ALL, &call));
    const struct kind kind = kind_of(&call);
    VF_TRY(check_kind(&plan->kind, &kind));
    call.request.aligned = plan->kind.request.aligned;
    call.request.mapped = plan->kind.request.mapped;
    return context_run(plan->context, &call, &plan->prepared, plan->scope_context);
}

vf_status vf_plan_launch_forward(const vf_plan *plan, const vf_forward_args *args) {
    return launch(plan, args, false);
}

vf_status vf_plan_launch_backward(const vf_plan *plan, const vf_backward_args *args) {
    return launch(plan, args, true);
}
