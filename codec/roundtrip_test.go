// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"errors"
	"math"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/refold-io/refold/codec"
)

type (
	scalars struct {
		Bool  bool
		Int   int
		I8    int8
		I16   int16
		I32   int32
		I64   int64
		Uint  uint
		U8    uint8
		U16   uint16
		U32   uint32
		U64   uint64
		F32   float32
		F64   float64
		Text  string
		Bytes []byte
		For   time.Duration
		Named color
	}
	color string
	// Base and inner are embedded; inner is unexported.
	Base  struct{ ID, Kind string }
	inner struct{ Level int }

	containers struct {
		Base
		inner
		Strings []string
		Structs []Base
		Nested  [][]int
		Array   [3]uint16
		Sum     [4]byte
		Ptr     *Base
		Tree    *tree
		Names   map[string]string
		Flags   map[string]bool
		Counts  map[int]int64
		Points  map[[2]int8]*Base
		Levels  map[color]map[uint8][]string
		Floats  map[float64]struct{}
		Renamed int    `msgpack:"r"`
		Maybe   string `msgpack:",omitempty"`
		Perhaps []int  `msgpack:",omitempty"`
		Ignored int    `msgpack:"-"`
	}
	tree struct {
		Value       int
		Left, Right *tree
		More        []tree
	}
	boxes struct {
		Any  any
		List []any
		Map  map[string]any
	}
)

// registry returns a registry of one type.
func registry[T any](tb testing.TB) *codec.Registry {
	tb.Helper()
	r := codec.Types(codec.Name[T]("t"))
	if err := r.Err(); err != nil {
		tb.Fatal(err)
	}
	return r
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// roundTrip encodes v twice and decodes it once.
func roundTrip[T any](t fataler, r *codec.Registry, v T) T {
	t.Helper()
	manifest, payload, err := r.Encode(v)
	if err != nil {
		t.Fatalf("Encode(%#v): %v", v, err)
	}
	if _, again, _ := r.Encode(v); string(again) != string(payload) {
		t.Fatalf("Encode(%#v) = %x, then %x", v, payload, again)
	}
	got, err := r.Decode(manifest, payload)
	if err != nil {
		t.Fatalf("Decode(%q, %x): %v", manifest, payload, err)
	}
	typed, ok := got.(T)
	if !ok {
		t.Fatalf("Decode returned a %T", got)
	}
	return typed
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	t.Run("scalars", func(t *testing.T) {
		t.Parallel()
		property(t, rapid.MakeCustom[scalars](drawn()))
	})
	t.Run("containers", func(t *testing.T) {
		t.Parallel()
		property(t, rapid.Map(rapid.MakeCustom[containers](drawn()), func(c containers) containers {
			c.Level, c.Ignored = len(c.Strings), 0
			if len(c.Perhaps) == 0 {
				c.Perhaps = nil
			}
			return c
		}))
	})
	t.Run("interfaces", func(t *testing.T) {
		t.Parallel()
		property(t, rapid.Custom(func(t *rapid.T) boxes {
			return boxes{Any: boxed(t, 3), List: []any{boxed(t, 2)}, Map: map[string]any{"a": boxed(t, 2), "b": nil}}
		}))
	})
}

func property[T any](t *testing.T, values *rapid.Generator[T]) {
	t.Helper()
	r := registry[T](t)
	rapid.Check(t, func(t *rapid.T) {
		v := values.Draw(t, "value")
		if got := roundTrip(t, r, v); !reflect.DeepEqual(got, v) {
			t.Fatalf("%#v is decoded as %#v", v, got)
		}
	})
}

// drawn returns generators for the types that rapid cannot generate.
func drawn() rapid.MakeConfig {
	return rapid.MakeConfig{Types: map[reflect.Type]*rapid.Generator[any]{
		reflect.TypeFor[any]():   rapid.Just[any]("x"),
		reflect.TypeFor[*tree](): rapid.Custom(func(t *rapid.T) any { return drawTree(t, 3) }),
		reflect.TypeFor[time.Time](): rapid.Custom(func(t *rapid.T) any {
			return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "nsec")).UTC()
		}),
	}}
}

func drawTree(t *rapid.T, depth int) *tree {
	if depth == 0 || rapid.Bool().Draw(t, "leaf") {
		return nil
	}
	n := &tree{Value: rapid.Int().Draw(t, "value"), Left: drawTree(t, depth-1), Right: drawTree(t, depth-1)}
	if more := drawTree(t, depth-1); more != nil {
		n.More = []tree{*more, {}}
	}
	return n
}

// boxed generates values as they are read into an interface.
func boxed(t *rapid.T, depth int) any {
	kinds := 8
	if depth > 0 {
		kinds = 11
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64Min(math.MaxInt64+1).Draw(t, "uint")
	case 4:
		return rapid.Float64().Draw(t, "float64")
	case 5:
		return rapid.Float32().Draw(t, "float32")
	case 6:
		return rapid.String().Draw(t, "string")
	case 7:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	case 8:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			list = append(list, boxed(t, depth-1))
		}
		return list
	case 9:
		m := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			m[rapid.String().Draw(t, "key")] = boxed(t, depth-1)
		}
		return m
	default:
		m := map[any]any{}
		for range rapid.IntRange(1, 4).Draw(t, "length") {
			m[rapid.Int64().Draw(t, "key")] = boxed(t, depth-1)
		}
		return m
	}
}

// The msgpack library reads encoded values, and values that the library writes can be decoded.
func TestInterop(t *testing.T) {
	t.Parallel()
	type doc struct {
		Base
		Scalars scalars
		Tree    *tree
		Map     map[string][]Base
		Counts  map[int]string
		When    time.Time
		Short   string `msgpack:"s,omitempty"`
	}
	r := registry[doc](t)
	values := rapid.MakeCustom[doc](drawn())
	rapid.Check(t, func(t *rapid.T) {
		v := values.Draw(t, "value")
		manifest, ours, err := r.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		var got doc
		if err = msgpack.Unmarshal(ours, &got); err != nil {
			t.Fatal(err)
		}
		if got.When = got.When.UTC(); !reflect.DeepEqual(got, v) {
			t.Fatalf("the library reads %#v from an encoded %#v", got, v)
		}
		theirs, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Decode(manifest, theirs); err != nil || !reflect.DeepEqual(got, v) {
			t.Fatalf("%#v is decoded as %#v, %v", v, got, err)
		}
	})
}

// Go iterates over a map in a random order. Equal bytes in every run show that the entries are
// sorted.
func TestMapsAreSorted(t *testing.T) {
	t.Parallel()
	type key struct {
		A int
		B string
	}
	type maps struct {
		Ints    map[int]int
		Strings map[color]string
		Structs map[key]bool
		Bools   map[bool]map[int8]map[string]string
		Times   map[netip.Addr]int
		Any     any
		Keys    map[any]int
	}
	fill := func(up bool) maps {
		m := maps{
			Ints: map[int]int{}, Strings: map[color]string{}, Structs: map[key]bool{}, Times: map[netip.Addr]int{}, Keys: map[any]int{},
			Bools: map[bool]map[int8]map[string]string{true: {1: {"a": "b", "c": "d"}, -1: {}}, false: nil},
		}
		generic := map[any]any{}
		m.Any = []any{generic, map[string]any{"x": 1, "y": map[int16]string{1: "a", 300: "b"}}}
		for i := range 40 {
			if up {
				i = 39 - i
			}
			m.Ints[i*1000], m.Strings[color(strings.Repeat("x", i))], m.Structs[key{-i, "k"}] = i, "v", true
			m.Times[netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})] = i
			generic[float64(i)] = i
			m.Keys[i], m.Keys[strings.Repeat("k", i)] = i, i
		}
		return m
	}
	r := registry[maps](t)
	_, want, err := r.Encode(fill(true))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, got, err := r.Encode(fill(i%2 == 0)); err != nil || string(got) != string(want) {
			t.Fatalf("%x, %v, want %x", got, err, want)
		}
	}
	type pair struct{ M map[any]int }
	if _, _, err := registry[pair](t).Encode(pair{map[any]int{1: 1, int8(1): 2}}); err == nil {
		t.Error("Encode of two keys with the same encoded form returned no error")
	}
}

func TestNilAndEmpty(t *testing.T) {
	t.Parallel()
	type values struct {
		S1, S2 []int
		B1, B2 []byte
		M1, M2 map[int]int
		T1, T2 []struct{}
		P      *int
		E      error `msgpack:"-"`
	}
	want := values{S2: []int{}, B2: []byte{}, M2: map[int]int{}, T2: []struct{}{{}, {}}}
	if got := roundTrip(t, registry[values](t), want); !reflect.DeepEqual(got, want) {
		t.Errorf("%#v is decoded as %#v", want, got)
	}
}

func TestFloats(t *testing.T) {
	t.Parallel()
	type floats struct {
		A float64
		B float32
	}
	r := registry[floats](t)
	for _, f := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff8000000000abc), math.SmallestNonzeroFloat64, math.MaxFloat64} {
		if got := roundTrip(t, r, floats{f, float32(f)}); math.Float64bits(got.A) != math.Float64bits(f) {
			t.Errorf("%x is decoded as %x", math.Float64bits(f), math.Float64bits(got.A))
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	type times struct {
		T time.Time
		P *time.Time
		M map[string]time.Time
		A any
	}
	for _, tm := range []time.Time{
		{},
		time.Unix(0, 0), time.Unix(1, 2), time.Unix(-1, 999999999), time.Unix(1<<34-1, 999999999), time.Unix(1<<34, 0),
		time.Date(2088, 7, 1, 0, 0, 0, 937_000_000, time.UTC), time.Now().In(time.FixedZone("x", 3600)),
	} {
		got := roundTrip(t, registry[times](t), times{tm, &tm, map[string]time.Time{"a": tm}, tm})
		want := tm.Round(0).UTC()
		if got.T != want || *got.P != want || got.M["a"] != want || got.A != want {
			t.Errorf("%v is decoded as %+v", tm, got)
		}
	}
}

type (
	twoValues struct{}
	rawText   struct{ text string }
	rawValue  []byte
	setOf     map[string]struct{}
)

func (twoValues) MarshalMsgpack() ([]byte, error) { return []byte{1, 2}, nil }
func (*twoValues) UnmarshalMsgpack([]byte) error  { return nil }

func (r rawValue) MarshalMsgpack() ([]byte, error) { return r, nil }

func (r *rawValue) UnmarshalMsgpack(data []byte) error {
	*r = data
	return nil
}

type pairForm struct{ a, b int }

func (p *pairForm) MarshalMsgpack() ([]byte, error) { return msgpack.Marshal([]int{p.a, p.b}) }

func (p *pairForm) UnmarshalMsgpack(data []byte) error {
	var list []int
	if err := msgpack.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return errors.New("not a pair")
	}
	p.a, p.b = list[0], list[1]
	return nil
}

func (r rawText) MarshalMsgpack() ([]byte, error)     { return msgpack.Marshal(r.text) }
func (r *rawText) UnmarshalMsgpack(data []byte) error { return msgpack.Unmarshal(data, &r.text) }

func (s setOf) MarshalText() ([]byte, error) { return []byte(strings.Join(sorted(s), ",")), nil }

func (s *setOf) UnmarshalText(text []byte) error {
	*s = setOf{}
	for name := range strings.SplitSeq(string(text), ",") {
		(*s)[name] = struct{}{}
	}
	return nil
}

func TestTypesWithMarshalers(t *testing.T) {
	t.Parallel()
	type wrapper struct{ netip.Addr } // the only field: nothing is hidden
	type forms struct {
		Pair   pairForm
		Pairs  []pairForm
		PerKey map[string]pairForm
		Ptr    *pairForm
		Text   rawText
		Set    setOf
		NoSet  setOf
		Addr   netip.Addr
		Keys   map[netip.Addr]setOf
		URL    *url.URL
		Int    *big.Int
		Big    big.Int
		Raw    rawValue
		Wrap   wrapper
	}
	u, err := url.Parse("https://example.com/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	v := forms{
		Pair: pairForm{1, 2}, Pairs: []pairForm{{3, 4}}, PerKey: map[string]pairForm{"k": {5, 6}}, Ptr: &pairForm{7, 8}, Text: rawText{"x"},
		Set: setOf{"a": {}, "b": {}}, Addr: netip.MustParseAddr("10.1.2.3"), Keys: map[netip.Addr]setOf{netip.MustParseAddr("::1"): {"z": {}}},
		URL: u, Int: big.NewInt(-5), Big: *big.NewInt(1 << 40), Raw: rawValue{0x93, 1, 2, 3}, Wrap: wrapper{netip.MustParseAddr("::2")},
	}
	if got := roundTrip(t, registry[forms](t), v); !reflect.DeepEqual(got, v) {
		t.Errorf("%#v is decoded as %#v", v, got)
	}
	zero := roundTrip(t, registry[forms](t), forms{})
	if zero.Big.Sign() != 0 || !reflect.DeepEqual(zero.Pair, pairForm{}) || zero.NoSet != nil || zero.Ptr != nil || zero.Addr.IsValid() {
		t.Errorf("the zero value is decoded as %#v, want the zero value", zero)
	}
	if _, _, err := registry[twoValues](t).Encode(twoValues{}); err == nil || !strings.Contains(err.Error(), "more than one value") {
		t.Errorf("Encode with a method that writes two values: %v, want an error", err)
	}
	for _, payload := range []string{"\x93\x01\x02\x03", "\x91\xa1x", "\xa1x"} {
		if _, err := registry[pairForm](t).Decode("t", []byte(payload)); !errors.Is(err, codec.ErrMalformed) {
			t.Errorf("%x: %v, want ErrMalformed", payload, err)
		}
	}
}

type bomb struct{ A, B int }

func (b *bomb) MarshalText() ([]byte, error) {
	if b.A == 1 {
		panic("encode")
	}
	return []byte("x"), nil
}
func (b *bomb) UnmarshalText([]byte) error { panic(errNowhere) }

func TestPanicsBecomeErrors(t *testing.T) {
	t.Parallel()
	type carrier struct{ Bomb bomb }
	r := registry[carrier](t)
	_, _, err := r.Encode(carrier{bomb{A: 1}})
	if p, ok := errors.AsType[*codec.PanicError](err); !ok || p.Value != "encode" {
		t.Error(err)
	}
	manifest, payload, err := r.Encode(carrier{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Decode(manifest, payload); !errors.Is(err, errNowhere) {
		t.Error(err)
	}
	st, err := codec.NewState(reflect.TypeFor[*carrier]())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Encode(&carrier{bomb{A: 1}}); err == nil {
		t.Error("Encode returned no error for a method that panics")
	}
	if err := st.Decode(payload, &carrier{}); !errors.Is(err, errNowhere) {
		t.Error(err)
	}
}

func TestMismatches(t *testing.T) {
	t.Parallel()
	type target struct {
		I8    int8
		U     uint
		U8    uint8
		F32   float32
		S     string
		B     bool
		L     []int
		M     map[string]int
		A     [2]int
		D     [2]byte
		T     time.Time
		Inner []Base
		Any   any
	}
	r := registry[target](t)
	for _, c := range []struct {
		path  string
		value any
	}{
		{"I8", 128},
		{"I8", -129},
		{"I8", uint64(math.MaxUint64)},
		{"I8", "1"},
		{"I8", 1.5},
		{"U", -1},
		{"U8", 256},
		{"U", "1"},
		{"F32", "1"},
		{"F32", 1e300},
		{"S", 1},
		{"B", 1},
		{"L", "x"},
		{"L", map[string]int{}},
		{"M", []int{}},
		{"A", []int{1, 2, 3}},
		{"A", 1},
		{"D", []byte{1, 2, 3}},
		{"D", []int{1, 2}},
		{"T", 5},
		{"T", "2020-01-01"},
	} {
		payload, err := msgpack.Marshal(map[string]any{c.path: c.value})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Decode("t", payload); !errors.Is(err, codec.ErrMalformed) || !strings.Contains(err.Error(), c.path+": ") {
			t.Errorf("%v into %s: %v, %v, want ErrMalformed", c.value, c.path, got, err)
		}
	}
	payload, err := msgpack.Marshal(map[string]any{"Inner": []any{map[string]any{}, map[string]any{"ID": 5}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Decode("t", payload); err == nil || !strings.Contains(err.Error(), "codec: decode t: Inner[1].ID: malformed data: an integer, want string") {
		t.Errorf("Decode: %v, want an error with the path Inner[1].ID", err)
	}
	for _, payload := range []string{
		"\x81\xa3Any\xd4\x05\x00",             // an unknown extension
		"\x81\xa3Any\x81\x90\x00",             // a key that can't be compared
		"\x81\xa3Any\x82\x01\x00\xa1a\x00",    // keys of two kinds
		"\x81\x01\x00",                        // a field without a name
		"\x81\xa1T\xd6\x05\x00\x00\x00\x00",   // an extension that is not a time
		"\x90",                                // not a map
		"\x81\xa3Any\xc1", "\x80\x80", "\x81", // damaged
	} {
		if got, err := r.Decode("t", []byte(payload)); !errors.Is(err, codec.ErrMalformed) {
			t.Errorf("%q: %v, %v, want ErrMalformed", payload, got, err)
		}
	}
	if got, err := r.Decode("t", []byte("\xc0")); err != nil || !reflect.DeepEqual(got, target{}) {
		t.Errorf("nil is decoded as %#v, %v, want the zero value", got, err)
	}
	nils := []byte("\x8d")
	for f := range reflect.TypeFor[target]().Fields() {
		nils = append(nils, 0xa0|byte(len(f.Name)))
		nils = append(append(nils, f.Name...), 0xc0)
	}
	if got, err := r.Decode("t", nils); err != nil || !reflect.DeepEqual(got, target{}) {
		t.Errorf("a struct whose fields are all nil is decoded as %#v, %v, want the zero value", got, err)
	}
}

// Decoded values do not refer to the payload.
func TestPayloadIsNotKept(t *testing.T) {
	t.Parallel()
	r := registry[boxes](t)
	v := boxes{Any: []byte("abc"), List: []any{"def", []byte("ghi")}, Map: map[string]any{"jkl": "mno"}}
	manifest, payload, err := r.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Decode(manifest, payload)
	if err != nil {
		t.Fatal(err)
	}
	clear(payload)
	if !reflect.DeepEqual(got, v) {
		t.Errorf("after a change of the payload the decoded value is %#v, want %#v", got, v)
	}
}

func TestMapKeys(t *testing.T) {
	t.Parallel()
	type key struct{ A, B int }
	type target struct{ M map[key]int }
	got, err := registry[target](t).Decode("t", []byte("\x81\xa1M\x82\x82\xa1A\x01\xa1B\x02\x07\x81\xa1A\x03\x08"))
	if want := (target{map[key]int{{1, 2}: 7, {3, 0}: 8}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
