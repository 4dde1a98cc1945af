// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/plugins/leveldb"
)

func openDurable(t *testing.T, dir string, cfg leveldb.DurableConfig) durable.Store {
	t.Helper()
	s, err := leveldb.NewDurable(dir, cfg).Open(t.Context(), durableID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func writeDurable(t *testing.T, s durable.Store, records ...durable.Record) {
	t.Helper()
	if err := s.Write(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

func loadDurable(t *testing.T, s durable.Store) (all []durable.Record, err error) {
	t.Helper()
	for r, lerr := range s.Load(t.Context()) {
		if err = lerr; err == nil {
			all = append(all, r)
		}
	}
	return all, err
}

// wantOpenFailure checks that a store cannot be opened for reading or for writing.
func wantOpenFailure(t *testing.T, dir string, want error, text string) {
	t.Helper()
	for _, readOnly := range []bool{true, false} {
		s, err := leveldb.NewDurable(dir, leveldb.DurableConfig{ReadOnly: readOnly}).Open(t.Context(), durableID())
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), durableID().String()) {
			t.Errorf("read-only %t: %v, want %v with %q", readOnly, err, want, text)
		}
	}
}

// putFile writes a file, and the directories above it.
func putFile(name, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, []byte(text), 0o600))
}

func setOrder(dir, name string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o750), leveldb.SetOrder(dir, name))
}

// withLog creates an intact store with some records in a log, and returns the path of the log.
func withLog(at string) (log string, err error) {
	s, err := leveldb.NewDurable(filepath.Dir(filepath.Dir(at)), leveldb.DurableConfig{}).Open(noContext(), durableID())
	if err != nil {
		return "", err
	}
	for _, r := range []durable.Record{{Key: "a", Data: []byte("1")}, {Key: "b", Data: []byte(strings.Repeat("2", 500))}, {Key: "c", Data: []byte("3")}} {
		err = errors.Join(err, s.Write(noContext(), []durable.Record{r}))
	}
	found, gerr := filepath.Glob(filepath.Join(at, "*.log"))
	if err = errors.Join(err, gerr, s.Close()); err == nil && len(found) != 1 {
		err = fmt.Errorf("the logs are %v", found)
	}
	return strings.Join(found, ""), err
}

// Open rejects each of these directories with an error that names the cause, and changes nothing.
func TestDurableOpenErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(at string) error
		want error
		text string
	}{
		"a file":                        {func(at string) error { return putFile(at, "garbage") }, durable.ErrForeign, "a+1"},
		"another file inside":           {func(at string) error { return putFile(filepath.Join(at, "notes.txt"), "x") }, durable.ErrForeign, "notes.txt"},
		"a directory inside":            {func(at string) error { return putFile(filepath.Join(at, "x.log", "y"), "x") }, durable.ErrForeign, "x.log"},
		"a journal":                     {func(at string) error { return setOrder(at, "refold.leveldb/2") }, durable.ErrForeign, "refold.leveldb/2"},
		"a database of another program": {func(at string) error { return setOrder(at, "leveldb.BytewiseComparator") }, durable.ErrForeign, "leveldb.BytewiseComparator"},
		"a later format":                {func(at string) error { return setOrder(at, "refold.leveldb.durable/2") }, durable.ErrVersion, "format 2, this version supports 1"},
		"garbage for CURRENT": {func(at string) error {
			_, err := withLog(at)
			return errors.Join(err, putFile(filepath.Join(at, "CURRENT"), "garbage"))
		}, durable.ErrCorrupt, "CURRENT"},
		"a damaged log": {func(at string) error {
			log, err := withLog(at)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return putFile(log, string(b))
		}, durable.ErrCorrupt, ".log"},
		"a log is missing": {func(at string) error {
			log, err := withLog(at)
			return errors.Join(err, os.Remove(log))
		}, durable.ErrCorrupt, ".log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := c.make(leveldb.NewDurable(dir, leveldb.DurableConfig{}).Dir(durableID())); err != nil {
				t.Fatal(err)
			}
			wantOpenFailure(t, dir, c.want, c.text)
		})
	}
}

// The error names a record that cannot be read. The records before it are loaded.
func TestDurableRecordErrors(t *testing.T) {
	t.Parallel()
	right := leveldb.EncodeRecord(durable.Record{Key: "b", Data: []byte("two")})
	later := append([]byte{2, ^byte(2)}, right[2:]...)
	odd := append([]byte{2}, right[1:]...)
	for name, c := range map[string]struct {
		key, value []byte
		want       error
		text       string
	}{
		"another version": {leveldb.RecordKey("b"), later, durable.ErrVersion, `"b": journal: written by a newer version: record version 2`},
		"a damaged one":   {leveldb.RecordKey("b"), odd, durable.ErrCorrupt, `"b"`},
		"of another key":  {leveldb.RecordKey("bb"), right, durable.ErrCorrupt, `the record of "bb": checksum mismatch`},
		"truncated":       {leveldb.RecordKey("b"), right[:len(right)-1], durable.ErrCorrupt, `"b"`},
		"empty":           {leveldb.RecordKey("b"), nil, durable.ErrCorrupt, `"b"`},
		"too large":       {leveldb.RecordKey("b"), leveldb.EncodeRecord(durable.Record{Key: "b", Data: make([]byte, durable.MaxData+1)}), durable.ErrCorrupt, `"b"`},
		"of another kind": {[]byte("x"), right, durable.ErrCorrupt, "malformed key 78"},
		"of no key":       {[]byte("r"), right, durable.ErrCorrupt, "malformed key 72"},
		"of a long key":   {leveldb.RecordKey(strings.Repeat("k", durable.MaxKey+1)), right, durable.ErrCorrupt, "malformed key 726b6b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := openDurable(t, dir, leveldb.DurableConfig{})
			writeDurable(t, s, durable.Record{Key: "a", Data: []byte("1")}, durable.Record{Key: "z", Data: []byte("3")})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			db := leveldb.RawDurable(t, leveldb.NewDurable(dir, leveldb.DurableConfig{}).Dir(durableID()))
			if err := errors.Join(db.Put(c.key, c.value, nil), db.Close()); err != nil {
				t.Fatal(err)
			}
			s = openDurable(t, dir, leveldb.DurableConfig{ReadOnly: true})
			all, err := loadDurable(t, s)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("load: %v, want %v with %q", err, c.want, c.text)
			}
			if len(all) > 2 || len(all) > 0 && string(all[0].Data) != "1" {
				t.Errorf("load: %d records, want at most the 2 before the damage", len(all))
			}
		})
	}
}

func TestDurableReadOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := leveldb.NewDurable(dir, leveldb.DurableConfig{ReadOnly: true}).Open(t.Context(), durableID()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing store: %v, want ErrNotExist", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat after the read-only open: %v, want ErrNotExist", err)
	}
	s := openDurable(t, dir, leveldb.DurableConfig{})
	writeDurable(t, s, durable.Record{Key: "a", Data: []byte("1")})
	if _, err := leveldb.NewDurable(dir, leveldb.DurableConfig{ReadOnly: true}).Open(t.Context(), durableID()); !errors.Is(err, durable.ErrInUse) {
		t.Errorf("a store that is open for writing: %v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []durable.Store{openDurable(t, dir, leveldb.DurableConfig{ReadOnly: true}), openDurable(t, dir, leveldb.DurableConfig{ReadOnly: true})} {
		if all, err := loadDurable(t, s); err != nil || len(all) != 1 {
			t.Errorf("load: %v, %v, want one record", all, err)
		}
		if err := s.Write(t.Context(), []durable.Record{{Key: "a"}}); !errors.Is(err, leveldb.ErrReadOnly) {
			t.Errorf("write: %v, want ErrReadOnly", err)
		}
	}
}

func TestDurableIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := leveldb.NewDurable(dir, leveldb.DurableConfig{})
	var want []durable.ID
	for _, node := range []string{"10.0.0.1:7355", "B.example.org:1", "a", ".", ".."} {
		for _, replicator := range []string{"Carts", "carts", "x.y"} {
			id := durable.ID{Node: node, Replicator: replicator}
			s, err := d.Open(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			want = append(want, id)
		}
	}
	for _, other := range []string{"lost+found+", "a/UPPER", "a/x=zz", "b=80/x"} {
		if err := os.MkdirAll(filepath.Join(dir, other), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"file", "a/file"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.IDs()
	if err != nil {
		t.Fatal(err)
	}
	byName := func(a, b durable.ID) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(got, byName)
	slices.SortFunc(want, byName)
	want = append(want, durable.ID{Node: "B", Replicator: "x"}) // an empty directory that could be a store
	slices.SortFunc(want, byName)
	if !slices.Equal(got, want) {
		t.Errorf("IDs = %v,\nwant %v", got, want)
	}
	if _, err := leveldb.NewDurable(filepath.Join(dir, "missing"), leveldb.DurableConfig{}).IDs(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("IDs of a missing directory: %v, want ErrNotExist", err)
	}
}

// Names of directories are valid, and different, on any file system.
func TestDirNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	long := strings.Repeat("N", 128)
	for name, want := range map[string]string{
		"10.0.0.1:7355": "10.0.0.1+7355", "carts": "carts", "Carts": "carts=80", "cArts": "carts=40", "carTS:1": "carts+1=18", ".": ",", "..": ",,", "...": ",.,", ".a": ",a",
		"a.": "a,", "a.b": "a.b", "-": "-", "_": "_", "abcdefghI": "abcdefghi=0080", long: strings.Repeat("n", 128) + "=" + strings.Repeat("f", 32),
	} {
		got := leveldb.DirName(name)
		if got != want || len(got) > 255 || strings.ToLower(got) != got {
			t.Errorf("DirName(%q) = %q, want %q", name, got, want)
		}
		if back, ok := leveldb.NameOfDir(got); !ok || back != name {
			t.Errorf("NameOfDir(%q) = %q, %t, want %q", got, back, ok, name)
		}
		if other, found := seen[got]; found {
			t.Errorf("%q and %q have the same directory name %q", name, other, got)
		}
		seen[got] = name
	}
	for _, dir := range []string{"", "A", "a=", "a=00", "a=8", "a=zz", "a=80=80", "a=8000", ".a", "a b", "a/b", ",", "=80"} {
		if name, ok := leveldb.NameOfDir(dir); ok && leveldb.DirName(name) != dir {
			t.Errorf("NameOfDir(%q) = %q, want no name", dir, name)
		}
	}
}

const holdDurableDir = "REFOLD_TEST_HOLD_DURABLE_DIR"

// holdDurable holds a store open for TestDurableInUse, in a separate process.
func holdDurable(dir string) {
	s, err := leveldb.NewDurable(dir, leveldb.DurableConfig{}).Open(noContext(), durableID())
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("open\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the other end is closed
	_ = s.Close()
	os.Exit(0)
}

func TestDurableInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), holdDurableDir+"="+dir)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the other process printed %q, %v, want open", line, err)
	}
	wantOpenFailure(t, dir, durable.ErrInUse, "directory is in use")
	if err := errors.Join(in.Close(), other.Wait()); err != nil {
		t.Fatal(err)
	}
	openDurable(t, dir, leveldb.DurableConfig{})
}

// goldenDurable has a line for each record: key and value in hexadecimal. It is never changed; a
// new version of the format adds another file.
const goldenDurable = "testdata/durable/v1.golden"

func TestDurableGolden(t *testing.T) {
	t.Parallel()
	records := []durable.Record{
		{Key: "\x00", Data: []byte{0}}, {Key: "cart-1", Data: []byte("some data")}, {Key: "cart-2", Data: []byte{1, 2, 0xff}}, {Key: "é", Data: []byte("x")},
	}
	var lines strings.Builder
	for _, r := range records {
		lines.WriteString(hex.EncodeToString(leveldb.RecordKey(r.Key)) + " " + hex.EncodeToString(leveldb.EncodeRecord(r)) + "\n")
	}
	want := readGolden(t, goldenDurable)
	if lines.String() != want {
		t.Errorf("the encoded records differ from %s:\n%s", goldenDurable, lines.String())
	}
	dir := t.TempDir()
	if err := openDurable(t, dir, leveldb.DurableConfig{}).Close(); err != nil {
		t.Fatal(err)
	}
	db := leveldb.RawDurable(t, leveldb.NewDurable(dir, leveldb.DurableConfig{}).Dir(durableID()))
	for line := range strings.Lines(want) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		k, kerr := hex.DecodeString(key)
		v, verr := hex.DecodeString(value)
		if err := errors.Join(kerr, verr, db.Put(k, v, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := loadDurable(t, openDurable(t, dir, leveldb.DurableConfig{}))
	if err != nil || !slices.EqualFunc(all, records, func(a, b durable.Record) bool { return a.Key == b.Key && string(a.Data) == string(b.Data) }) {
		t.Errorf("loaded %q, %v, want the golden records", all, err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(leveldb.RecordKey("a"), leveldb.EncodeRecord(durable.Record{Key: "a", Data: []byte("data")}))
	f.Add([]byte("r"), []byte{1, 0xfe})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		var (
			r   durable.Record
			err error
		)
		bounded(t, len(key)+len(value), func() { _, r, _, err = leveldb.DecodeRecord(key, value) })
		if err == nil && (r.Check() != nil || len(r.Data) == 0 || string(leveldb.RecordKey(r.Key)) != string(key)) {
			t.Errorf("%x was decoded as the record of %q with %d bytes", key, r.Key, len(r.Data))
		}
	})
}
