module draftlab

go 1.26
