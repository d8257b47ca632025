package compute

// WorkerPass is one worker's part of one pass, in nanoseconds of the device's clock.
type WorkerPass struct {
	From, To int64           // from its first operation to the end of its last
	Kinds    [NumKinds]int64 // its own work; what is missing to To − From is waiting for the other workers
}

// PassLogger is a device that can tell what its workers did. It is asked for only while a trace is recorded: the clock is then read
// twice an operation.
type PassLogger interface {
	// LogPasses switches the log on or off and empties it.
	LogPasses(on bool)
	// Passes calls f with each worker's part of each pass since the last call, and empties the log.
	Passes(f func(worker int, p *WorkerPass))
}
