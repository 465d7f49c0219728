// main.c - the varflash command: reads the command line, calls the verb, ends with its exit code. Each verb is a file of its
// own; what they share is command.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "output.h"
#include "varflash/varflash_dev.h"

static int print_version(const struct options *options) {
    vf_context *context;
    const vf_dev_info *info;
    char library[COMMAND_VERSION], nvrtc[COMMAND_VERSION], driver[COMMAND_VERSION];
    int code = command_open(options, &context);
    if (code) return code;
    vf_status status = vf_dev_info_get(context, &info);
    if (status) {
        code = command_failed(status);
        goto out;
    }
    command_version(library);
    command_cuda_version(nvrtc, info->nvrtc_version);
    command_cuda_version(driver, info->driver_version);
    if (options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "varflash", library);
        cJSON_AddItemToObject(json, "nvrtc", *nvrtc ? cJSON_CreateString(nvrtc) : cJSON_CreateNull());
        cJSON_AddItemToObject(json, "driver", *driver ? cJSON_CreateString(driver) : cJSON_CreateNull());
        output_json(json, false);
    } else {
        printf("varflash %s\nNVRTC    %s\ndriver   %s\n", library, *nvrtc ? nvrtc : "none", *driver ? driver : "none");
    }
out:
    vf_close(context);
    return code;
}

int main(int argc, char **argv) {
    struct options options;
    output_open(OUTPUT_NORMAL);
    command_begin();
    int code = options_parse(argc, argv, &options);
    output_open(options.quiet ? OUTPUT_QUIET : options.verbose ? OUTPUT_VERBOSE : OUTPUT_NORMAL);
    if (code) goto out;
    if (options.help)
        options_help(stdout, options.verb);
    else if (options.version)
        code = print_version(&options);
    else
        code = options.verb->run(&options);

    // Data that did not arrive (a full disk, a closed pipe) is no success.
    if (fflush(stdout) || ferror(stdout)) {
        output_error("cannot write to the standard output");
        if (code == CODE_OK) code = CODE_FILE;
    }
out:
    options_free(&options);
    return code;
}
