// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ebitengine/purego"

	"afterimage/internal/engine"
)

// Library is the loaded native code. There is one in a process.
type Library struct {
	dir      string
	identity string
	backend  engine.Backend
	use      []device // of a GPU; none where the CPU computes alone
	c        llamaCalls
	log      *nativeLog
	logFunc  uintptr // the callback, as native code sees it

	mtmdOnce sync.Once // guards the two fields below
	m        mtmdCalls
	mtmdErr  error
}

// loaded is the library of this process. Shared objects cannot be unloaded, and two builds in one
// process would share their symbols.
var loaded struct {
	sync.Mutex
	lib *Library
}

// Open loads the libraries of a folder that FindDir returned. Later calls with the same folder return
// the same Library; another folder is an error. What gpu allows is decided by the first call.
func Open(dir string, gpu GPU) (*Library, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.lib != nil {
		if loaded.lib.dir != dir {
			return nil, fmt.Errorf("llama: this process has loaded %s and cannot load %s as well", loaded.lib.dir, dir)
		}
		return loaded.lib, nil
	}
	lib, err := load(dir, gpu)
	if err != nil {
		return nil, err
	}
	loaded.lib = lib
	return lib, nil
}

func load(dir string, gpu GPU) (*Library, error) {
	if err := CheckCPU(); err != nil {
		return nil, err
	}
	// Hashing first also finds missing files, in better words than the loader's.
	sum, err := hashLibraries(dir)
	if err != nil {
		return nil, err
	}
	setEnvironment()
	l := &Library{dir: dir, log: &nativeLog{}}
	handle, err := open(filepath.Join(dir, libLlama), l.c.table())
	if err != nil {
		return nil, err
	}
	version := l.c.version()
	if err := checkVersion(dir, version); err != nil {
		return nil, err
	}
	if err := checkDefaults(dir, l.c.modelDefaults(), l.c.contextDefault()); err != nil {
		return nil, err
	}
	if err := l.startLog(handle); err != nil {
		return nil, err
	}
	// The back end is named, rather than searched for by the library, so that neither other files nor
	// the environment can add one whose bits Identity does not cover.
	file, err := l.openGPU(gpu)
	if err != nil {
		return nil, err
	}
	mark := l.log.mark()
	if l.c.backendLoad(filepath.Join(dir, libCPU)) == 0 {
		return nil, fmt.Errorf("llama: the CPU back end %s did not load: %s", filepath.Join(dir, libCPU), l.log.explain(mark))
	}
	l.c.backendInit()
	return l, l.name(version, sum, file)
}

// name sets the identity. sum is that of the libraries without back ends of GPUs, file is the one in use, or "".
func (l *Library) name(version, sum, file string) error {
	l.identity = fmt.Sprintf("llama.cpp %s cpu %s", version, sum[:12])
	if file == "" {
		return nil
	}
	own, err := hashFile(file)
	if err != nil {
		return err
	}
	all := sha256.Sum256(append([]byte(sum), own[:]...))
	l.identity = fmt.Sprintf("llama.cpp %s %s %s %s", version, l.backend.Name, hex.EncodeToString(all[:6]), l.backend.Device)
	return nil
}

// setEnvironment sets what the libraries read when they are loaded. Waiting OpenMP threads would
// otherwise spin, which makes a busy machine many times slower, and ggml would start a debugger on
// abort. What the user has set stays.
func setEnvironment() {
	for _, kv := range [][2]string{{"OMP_WAIT_POLICY", "passive"}, {"GGML_NO_BACKTRACE", "1"}} {
		if _, ok := os.LookupEnv(kv[0]); !ok {
			os.Setenv(kv[0], kv[1])
		}
	}
}

// startLog sends the log of libllama and libggml to l.log. handle finds symbols of both. The callback
// stays for the life of the process, as native threads may log at any time.
func (l *Library) startLog(handle uintptr) error {
	l.logFunc = purego.NewCallback(func(level int32, text *byte, _ uintptr) { l.log.line(level, goString(text)) })
	for _, name := range []string{"llama_log_set", "ggml_log_set"} {
		var set func(callback, data uintptr)
		addr, err := purego.Dlsym(handle, name)
		if err != nil {
			return fmt.Errorf("llama: %s lacks %s; run `make deps`", l.dir, name)
		}
		purego.RegisterFunc(&set, addr)
		set(l.logFunc, 0)
	}
	return nil
}

// mtmd loads libmtmd on first use, so that processes without an Encoder never map it.
func (l *Library) mtmd() (*mtmdCalls, error) {
	l.mtmdOnce.Do(func() {
		if _, l.mtmdErr = open(filepath.Join(l.dir, libMtmd), l.m.table()); l.mtmdErr != nil {
			return
		}
		l.m.setHelperLog(l.logFunc, 0)
		l.m.setLog(l.logFunc, 0)
		p := l.m.defaults()
		l.mtmdErr = checkMtmdDefaults(l.dir, p, goString(bytePtr(p.mediaMarker)))
	})
	return &l.m, l.mtmdErr
}

// Identity names library, version, back end and build, and of a GPU the device. On the CPU, equal identities
// compute equal bits: each build has one code path per architecture and chooses nothing by the processor it finds.
// The driver of a GPU has a say of its own.
func (l *Library) Identity() string { return l.identity }

// Dir returns the folder that the library was loaded from.
func (l *Library) Dir() string { return l.dir }

// hashLibraries returns the SHA-256, in hex, over names and contents of all shared objects in dir, without those
// of GPUs: what the CPU computes does not hang on whether they are there.
func hashLibraries(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return "", fmt.Errorf("llama: %w; run `make deps`", err)
	}
	h := sha256.New()
	found := map[string]bool{}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".so") || e.IsDir() || isGPULibrary(e.Name()) {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", errNoLibrary(dir, e.Name(), err)
		}
		n, err := io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", errNoLibrary(dir, e.Name(), err)
		}
		fmt.Fprintf(h, "\x00%s\x00%d\x00", e.Name(), n)
		found[e.Name()] = true
	}
	for _, name := range []string{libLlama, libMtmd, libCPU} {
		if !found[name] {
			return "", errNoLibrary(dir, name, os.ErrNotExist)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
