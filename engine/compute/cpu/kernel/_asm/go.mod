module draftlab/kernel-asm

go 1.26
