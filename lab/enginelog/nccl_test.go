package enginelog

import "testing"

// TestParseNCCL: lines as 2.18 to 2.30 write them, from public reports and from the format strings of its source (misc/param.cc,
// graph/tuning.cc, graph/paths.cc, param/c_api.cc, init.cc, proxy.cc).
func TestParseNCCL(t *testing.T) {
	const at = "pod-vf07:15718:15720 [3] NCCL INFO "
	var none NCCLVariable
	for line, want := range map[string]NCCLVariable{
		at + "NCCL_SOCKET_IFNAME set by environment to eth0":                                                                        {15718, "3", "NCCL_SOCKET_IFNAME", "eth0", false},
		at + "NCCL_ALGO set by environment to ring,tree":                                                                            {15718, "3", "NCCL_ALGO", "ring,tree", false},
		at + "NCCL_IB_DISABLE set by environment to 1.":                                                                             {15718, "3", "NCCL_IB_DISABLE", "1", false},
		at + "NCCL_P2P_LEVEL set by environment to SYS":                                                                             {15718, "3", "NCCL_P2P_LEVEL", "SYS", false},
		"(WorkerDict pid=3569860) " + at + "NCCL_PROTO set by environment to LL\r":                                                  {15718, "3", "NCCL_PROTO", "LL", false},
		"(RayWorker pid=1, ip=10.0.0.1) " + at + "NCCL_PROTO set by environment to LL":                                              {15718, "3", "NCCL_PROTO", "LL", false},
		"Loading shards:  12% Completed | 1/8 [00:01<00:01,  1.2it/s]" + at + "NCCL_PROTO set by environment to LL":                 {15718, "3", "NCCL_PROTO", "LL", false},
		at + "Invalid value many for NCCL_NTHREADS, using default -2.":                                                              {15718, "3", "NCCL_NTHREADS", "many", true},
		"[2025-06-05 13:22:01] h:7:9 [0] graph/tuning.cc:109 NCCL WARN Unrecognized element token \"LL256\" when parsing \"LL256\"": {7, "0", "", "LL256", true},
		"h:7:9 [0] graph/tuning.cc:109 NCCL WARN Unrecognized element token \"LL256\" when parsing \"LL,LL256\"":                    {7, "0", "", "LL,LL256", true},
		at + "Warning: ENV NCCL_CROSSNIC is unused. Setting it has no effect.":                                                      {15718, "3", "NCCL_CROSSNIC", "", true},
		"h:7:9 [0] init.cc:621 NCCL WARN NCCL_WORK_FIFO_BYTES=1000 is being ignored because it is not a power of 2.":                {7, "0", "NCCL_WORK_FIFO_BYTES", "", true},
		at + "failed to decode NCCL_PROXY_CPUSET=zz. Ignoring":                                                                      {15718, "3", "NCCL_PROXY_CPUSET", "", true},
		at + "Channel 20/24 : 0 1 2 3 4 5 6 7":                                                                                      none,
		at + "NET/Plugin: Could not find: libnccl-net.so":                                                                           none,
		"NCCL version 2.21.5+cuda12.4":                                                                                              none,
		"Receive: obj=GenerateReqInput(text='h:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring')":                            none,
		"": none,
	} {
		if got, ok := ParseNCCL(line); got != want || ok != (want != none) {
			t.Errorf("%q: %+v %v", line, got, ok)
		}
	}
}

func FuzzParseNCCL(f *testing.F) {
	f.Add("pod:1:2 [3] NCCL INFO NCCL_ALGO set by environment to Ring")
	f.Add("h:7:9 [0] graph/tuning.cc:109 NCCL WARN Unrecognized element token \"a\" when parsing \"a\"")
	f.Add("h:99999999999:9 [0] NCCL INFO Invalid value  for NCCL_X, using default")
	f.Fuzz(func(t *testing.T, line string) {
		if v, ok := ParseNCCL(line); ok && (v.Name == "" && !v.Ignored || v.PID < 0) || !ok && v != (NCCLVariable{}) {
			t.Errorf("%q: %+v", line, v)
		}
	})
}
