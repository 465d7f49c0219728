// pages.c - `varflash pages`: the manual page and the shells' completions, out of the same tables as --help.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "command.h"
#include "fs.h"
#include "options_table.h"
#include "output.h"

// Whether an option's value is a path.
static bool takes_path(const struct option *option) {
    return option->value && (strstr(option->value, "FILE") || strstr(option->value, "DIR"));
}

// The options of a verb that are for users. Calls `print` on each.
static void each_option(const struct verb *verb, void (*print)(const struct verb *verb, const struct option *option)) {
    for (size_t i = 0; i < option_count(); i++) {
        const struct option option = option_at(i);
        if (option.help && option_belongs(&option, verb)) print(verb, &option);
    }
}

// The words that a verb's arguments can be: "list|verify FILE" -> "list verify"; nothing where they are files or problems.
static void print_words(const struct verb *verb, const char *separator) {
    const char *text = verb->arguments, *comma = "";
    const size_t length = strcspn(text, " ");
    if (!strchr(text, '|') || strpbrk(text, "-[.") || (*text >= 'A' && *text <= 'Z')) return;
    for (size_t at = 0; at < length;) {
        const size_t word = strcspn(text + at, "| ");
        printf("%s%.*s", comma, (int)word, text + at);
        comma = separator;
        at += word + 1;
    }
}

// ---- manual page -----------------------------------------------------------------------------------------------------

static void print_roff(const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        if (*text == '\n' && (text[1] == '.' || text[1] == '\'')) fputs("\\&", stdout);
    }
}

static void man_option(const struct option *option) {
    fputs(".TP\n", stdout);
    if (option->letter) printf("\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", stdout);
    print_roff(option->name);
    fputs("\\fR", stdout);
    if (option->value) {
        fputs(" \\fI", stdout);
        print_roff(option->value);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    print_roff(option->help);
    putchar('\n');
}

static void man_verb(const struct verb *verb) {
    printf(".SS varflash %s ", verb->name);
    print_roff(verb->arguments);
    putchar('\n');
    print_roff(verb->summary);
    fputs(".\n.PP\n", stdout);
    print_roff(verb->text);
    putchar('\n');
    for (enum group group = GROUP_VERB; group < GROUPS; group++) {
        for (size_t i = 0; i < option_count(); i++) {
            const struct option option = option_at(i);
            if (option.help && option.group == group && group != GROUP_COMMON && option_belongs(&option, verb))
                man_option(&option);
        }
    }
}

static void man_group(enum group group, const char *title, const char *text) {
    printf(".SH %s\n%s\n", title, text);
    for (size_t i = 0; i < option_count(); i++) {
        const struct option option = option_at(i);
        if (option.help && option.group == group) man_option(&option);
    }
}

static void print_man(void) {
    char version[COMMAND_VERSION];
    printf(
        ".TH VARFLASH 1 \"\" \"varflash %s\" \"User Commands\"\n.SH NAME\nvarflash \\- attention over batches of "
        "sequences "
        "of different lengths\n.SH SYNOPSIS\n\\fBvarflash\\fR \\fIVERB\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n"
        "Generates, compiles, checks and times attention kernels. Data goes to the standard output, messages to the "
        "standard error.\n.SH VERBS\n",
        command_version(version));
    for (size_t i = 0; i < verb_count; i++) man_verb(&verbs[i]);
    man_group(GROUP_PROBLEM, "PROBLEMS",
              "A problem is described by options or by a JSON file with members of the same names.");
    man_group(GROUP_COMMON, "COMMON OPTIONS", "These mean the same in every verb that has them.");
    fputs(".SH ENVIRONMENT\n", stdout);
    for (size_t i = 0; i < environment_variable_count; i++) {
        printf(".TP\n.B %s\n", environment_variables[i].name);
        print_roff(environment_variables[i].meaning);
        putchar('\n');
    }
    fputs(".SH EXIT STATUS\n", stdout);
    for (size_t i = 0; i < exit_code_count; i++) {
        printf(".TP\n.B %d\n", exit_codes[i].code);
        print_roff(exit_codes[i].meaning);
        putchar('\n');
    }
    fputs(".SH SEE ALSO\n.BR varflash (3)\n", stdout);
}

// ---- bash ------------------------------------------------------------------------------------------------------------

static void bash_option(const struct verb *verb, const struct option *option) {
    (void)verb;
    printf(" --%s", option->name);
}

static void bash_path(const struct verb *verb, const struct option *option) {
    (void)verb;
    if (takes_path(option)) printf("|--%s", option->name);
}

static void print_bash(void) {
    fputs(
        "# bash completion of varflash; made by 'varflash pages bash'\n"
        "_varflash() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" = 1 ]; then\n        words='",
        stdout);
    for (size_t i = 0; i < verb_count; i++) printf("%s ", verbs[i].name);
    fputs("--help --version'\n    else\n        case ${COMP_WORDS[1]}:$before in\n", stdout);
    for (size_t i = 0; i < verb_count; i++) {
        printf("        %s:-o", verbs[i].name);
        each_option(&verbs[i], bash_path);
        fputs(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", stdout);
        printf("        %s:--suite) words=$(varflash check --suite list 2> /dev/null | sed 's/ .*//') ;;\n",
               verbs[i].name);
        printf("        %s:*) words='", verbs[i].name);
        print_words(&verbs[i], " ");
        each_option(&verbs[i], bash_option);
        fputs("' ;;\n", stdout);
    }
    fputs(
        "        esac\n    fi\n"
        "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
        "    [ \"${#COMPREPLY[@]}\" -gt 0 ] || COMPREPLY=($(compgen -f -- \"$word\"))\n"
        "}\n"
        "complete -o filenames -F _varflash varflash\n",
        stdout);
}

// ---- zsh -------------------------------------------------------------------------------------------------------------

// In single quotes, inside the brackets of a specification.
static void print_zsh(const char *text) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_option(const struct verb *verb, const struct option *option) {
    (void)verb;
    printf("            '--%s[", option->name);
    print_zsh(option->help);
    fputs("]", stdout);
    if (option->value) {
        fputs(":", stdout);
        print_zsh(option->value);
        fputs(takes_path(option) ? ":_files" : ":", stdout);
    }
    fputs("' \\\n", stdout);
}

static void print_zsh_page(void) {
    fputs(
        "#compdef varflash\n# zsh completion of varflash; made by 'varflash pages zsh'\n_varflash() {\n"
        "    local -a verbs=(\n",
        stdout);
    for (size_t i = 0; i < verb_count; i++) {
        printf("        '%s:", verbs[i].name);
        print_zsh(verbs[i].summary);
        fputs("'\n", stdout);
    }
    fputs(
        "    )\n    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n    fi\n"
        "    local verb=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $verb in\n",
        stdout);
    for (size_t i = 0; i < verb_count; i++) {
        printf("        %s) _arguments \\\n", verbs[i].name);
        each_option(&verbs[i], zsh_option);
        fputs("            '1:argument:(", stdout);
        print_words(&verbs[i], " ");
        fputs(")' '*:file:_files' ;;\n", stdout);
    }
    fputs("    esac\n}\n_varflash \"$@\"\n", stdout);
}

// ---- fish ------------------------------------------------------------------------------------------------------------

static void print_fish(const char *text) {
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') putchar('\\');
        putchar(*text);
    }
}

static void fish_option(const struct verb *verb, const struct option *option) {
    printf("complete -c varflash -n '__fish_seen_subcommand_from %s' -l %s", verb->name, option->name);
    if (option->letter) printf(" -s %c", option->letter);
    if (option->value) fputs(takes_path(option) ? " -r -F" : " -x", stdout);
    fputs(" -d '", stdout);
    print_fish(option->help);
    fputs("'\n", stdout);
}

static void print_fish_page(void) {
    fputs(
        "# fish completion of varflash; made by 'varflash pages fish'\ncomplete -c varflash -n __fish_use_subcommand "
        "-f\n",
        stdout);
    for (size_t i = 0; i < verb_count; i++) {
        printf("complete -c varflash -n __fish_use_subcommand -a %s -d '", verbs[i].name);
        print_fish(verbs[i].summary);
        fputs("'\n", stdout);
        printf("complete -c varflash -n '__fish_seen_subcommand_from %s' -a '", verbs[i].name);
        print_words(&verbs[i], " ");
        fputs("'\n", stdout);
        each_option(&verbs[i], fish_option);
    }
}

// ---- the verb --------------------------------------------------------------------------------------------------------

int verb_pages(const struct options *options) {
    static const struct {
        const char *name;
        void (*print)(void);
    } pages[] = {{"man", print_man}, {"bash", print_bash}, {"zsh", print_zsh_page}, {"fish", print_fish_page}};
    for (size_t i = 0; i < sizeof(pages) / sizeof(*pages) && options->arguments.count == 1; i++) {
        if (strcmp(pages[i].name, options->arguments.items[0]) != 0) continue;
        pages[i].print();
        return CODE_OK;
    }
    output_error("pages: takes one of man, bash, zsh, fish");
    return CODE_USAGE;
}
