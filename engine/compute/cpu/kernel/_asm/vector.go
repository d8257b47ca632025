package main

func genVector(f *file) {}
