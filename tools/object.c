// object.c - see object.h. Sections: the data, the symbols, their names, the sections' names, and the empty one that says
// that the stack need not be executable.
#include "object.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#elif defined(__powerpc64__)
#define MACHINE EM_PPC64
#else
#define MACHINE EM_NONE
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BYTE_ORDER_OF_DATA ELFDATA2LSB
#else
#define BYTE_ORDER_OF_DATA ELFDATA2MSB
#endif

enum { NONE, DATA, SYMBOLS, NAMES, SECTION_NAMES, STACK, SECTIONS };

static const char section_names[] = "\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";

static Elf64_Word name_at(const char *name) {
    for (size_t at = 1; at < sizeof section_names; at += strlen(section_names + at) + 1) {
        if (!strcmp(section_names + at, name)) return (Elf64_Word)at;
    }
    return 0;
}

static void align(struct buf *file) {
    while (file->size % 8 && !file->failed) buf_append(file, "", 1);
}

void object_write(const char *symbol, const void *data, size_t size, struct buf *file) {
    const Elf64_Sym symbols[2] = {{.st_name = 0},
                                  {.st_name = 1,
                                   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                                   .st_other = STV_HIDDEN,
                                   .st_shndx = DATA,
                                   .st_size = size}};
    Elf64_Shdr sections[SECTIONS] = {
        [DATA] = {.sh_name = name_at(".rodata"), .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC, .sh_addralign = 8},
        [SYMBOLS] = {.sh_name = name_at(".symtab"),
                     .sh_type = SHT_SYMTAB,
                     .sh_link = NAMES,
                     .sh_info = 1,  // the first that is global
                     .sh_entsize = sizeof *symbols,
                     .sh_addralign = 8},
        [NAMES] = {.sh_name = name_at(".strtab"), .sh_type = SHT_STRTAB, .sh_addralign = 1},
        [SECTION_NAMES] = {.sh_name = name_at(".shstrtab"), .sh_type = SHT_STRTAB, .sh_addralign = 1},
        [STACK] = {.sh_name = name_at(".note.GNU-stack"), .sh_type = SHT_PROGBITS, .sh_addralign = 1},
    };
    struct buf names = {0};
    buf_append(&names, "", 1);
    buf_append(&names, symbol, strlen(symbol) + 1);
    const struct {
        const void *bytes;
        size_t size;
    } contents[SECTIONS] = {[DATA] = {data, size},
                            [SYMBOLS] = {symbols, sizeof symbols},
                            [NAMES] = {buf_string(&names), names.size},
                            [SECTION_NAMES] = {section_names, sizeof section_names}};
    Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, BYTE_ORDER_OF_DATA, EV_CURRENT},
                         .e_type = ET_REL,
                         .e_machine = MACHINE,
                         .e_version = EV_CURRENT,
                         .e_ehsize = sizeof header,
                         .e_shentsize = sizeof *sections,
                         .e_shnum = SECTIONS,
                         .e_shstrndx = SECTION_NAMES};
    struct buf object = {0};  // offsets count from its start
    buf_append(&object, &header, sizeof header);
    for (int i = DATA; i < SECTIONS; i++) {
        align(&object);
        sections[i].sh_offset = object.size;
        sections[i].sh_size = contents[i].size;
        buf_append(&object, contents[i].bytes, contents[i].size);
    }
    align(&object);
    header.e_shoff = object.size;
    buf_append(&object, sections, sizeof sections);
    if (!object.failed) memcpy(object.data, &header, sizeof header);
    buf_append(file, buf_string(&object), object.size);
    file->failed |= object.failed || names.failed;
    buf_free(&object);
    buf_free(&names);
}
