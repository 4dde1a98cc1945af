// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package money_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/examples/bank/money"
)

func Example() {
	fare, err := money.Parse("12.50", money.USD)
	if err != nil {
		panic(err)
	}
	local, err := money.Rate("32.15").Convert(fare, money.TWD)
	if err != nil {
		panic(err)
	}
	fmt.Println(fare, "=", local) // 401.875 is rounded to even
	// Output: 12.50 USD = 401.88 TWD
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1": 100, "12.5": 1250, "12.50": 1250, "12.500": 1250, "0.07": 7, "-0.07": -7, "-12": -1200, "007": 700,
		"92233720368547758.07": math.MaxInt64, "-92233720368547758.08": math.MinInt64,
	} {
		got, err := money.Parse(text, money.USD)
		if err != nil || got != money.New(want, money.USD) {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, err, money.New(want, money.USD))
		}
	}
	for text, want := range map[string]error{
		"": money.ErrSyntax, ".": money.ErrSyntax, "-": money.ErrSyntax, "1.": money.ErrSyntax, ".5": money.ErrSyntax,
		"--1": money.ErrSyntax, "+1": money.ErrSyntax, " 1": money.ErrSyntax, "1 ": money.ErrSyntax, "1,000": money.ErrSyntax,
		"1e3": money.ErrSyntax, "0x10": money.ErrSyntax, "NaN": money.ErrSyntax, "Inf": money.ErrSyntax, "1.2.3": money.ErrSyntax,
		"1_0": money.ErrSyntax, "١": money.ErrSyntax, strings.Repeat("1", 41): money.ErrSyntax,
		"0.001": money.ErrTooFine, "1.005": money.ErrTooFine, "-1.999": money.ErrTooFine,
		"92233720368547758.08": money.ErrOverflow, "-92233720368547758.09": money.ErrOverflow, "99999999999999999999": money.ErrOverflow,
	} {
		if got, err := money.Parse(text, money.USD); !errors.Is(err, want) {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseCurrency(t *testing.T) {
	t.Parallel()
	for _, c := range money.Currencies() {
		if got, err := money.ParseCurrency(string(c)); err != nil || got != c {
			t.Errorf("ParseCurrency(%q) = %q, %v; want the same code", c, got, err)
		}
	}
	if got, err := money.ParseCurrency("NTD"); err != nil || got != money.TWD {
		t.Errorf("ParseCurrency(NTD) = %q, %v; want TWD", got, err)
	}
	for _, code := range []string{"", "usd", "ntd", "EUR", "USD "} {
		if _, err := money.ParseCurrency(code); !errors.Is(err, money.ErrCurrency) {
			t.Errorf("ParseCurrency(%q): error %v, want ErrCurrency", code, err)
		}
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	most, least := money.New(math.MaxInt64, money.TWD), money.New(math.MinInt64, money.TWD)
	cent := money.New(1, money.TWD)
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"above", second(most.Add(cent)), money.ErrOverflow},
		{"below", second(least.Sub(cent)), money.ErrOverflow},
		{"less the least", second(cent.Sub(least)), money.ErrOverflow},
		{"mixed sum", second(cent.Add(money.New(1, money.USD))), money.ErrMixed},
		{"mixed difference", second(cent.Sub(money.New(1, money.USD))), money.ErrMixed},
		{"up to the most", second(money.New(math.MaxInt64-1, money.TWD).Add(cent)), nil},
		{"down to the least", second(money.New(math.MinInt64+1, money.TWD).Sub(cent)), nil},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
}

func second(_ money.Amount, err error) error { return err }

func TestSumsAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, y := rapid.Int64().Draw(t, "x"), rapid.Int64().Draw(t, "y")
		check := func(op string, got money.Amount, err error, want *big.Int) {
			if !want.IsInt64() {
				if !errors.Is(err, money.ErrOverflow) {
					t.Fatalf("%d %s %d: %v, %v; want ErrOverflow", x, op, y, got, err)
				}
				return
			}
			// The least number cannot be negated.
			if err != nil && (op != "-" || y != math.MinInt64) || err == nil && got.Minor() != want.Int64() {
				t.Fatalf("%d %s %d = %v, %v; want %v", x, op, y, got, err, want)
			}
		}
		a, b := money.New(x, money.USD), money.New(y, money.USD)
		got, err := a.Add(b)
		check("+", got, err, new(big.Int).Add(big.NewInt(x), big.NewInt(y)))
		got, err = a.Sub(b)
		check("-", got, err, new(big.Int).Sub(big.NewInt(x), big.NewInt(y)))
	})
}

func TestConvertRoundsHalfToEven(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		minor int64
		rate  money.Rate
		want  int64
	}{
		{100, "32.15", 3215},
		{1, "0.5", 0},
		{3, "0.5", 2},
		{5, "0.5", 2},
		{7, "0.5", 4},
		{-1, "0.5", 0},
		{-3, "0.5", -2},
		{1, "0.50000000000000001", 1},
		{1, "0.49999999999999999", 0},
		{1, "1.5", 2},
		{1, "2.5", 2},
		{0, "32.15", 0},
		// Rounding to 19 digits first would create a tie.
		{9_999_999_999_999_999, "1.00000000000000005", 9_999_999_999_999_999},
		{math.MaxInt64, "1", math.MaxInt64},
		{math.MinInt64, "1", math.MinInt64},
	} {
		got, err := c.rate.Convert(money.New(c.minor, money.USD), money.TWD)
		if err != nil || got != money.New(c.want, money.TWD) {
			t.Errorf("%d at %s = %v, %v; want %d", c.minor, c.rate, got, err, c.want)
		}
	}
	for _, c := range []struct {
		minor int64
		rate  money.Rate
		want  error
	}{
		{math.MaxInt64, "1.01", money.ErrOverflow},
		{math.MaxInt64, "999999999999999999", money.ErrOverflow},
		{1, "0", money.ErrRate},
		{1, "-1", money.ErrRate},
		{1, "", money.ErrRate},
	} {
		if got, err := c.rate.Convert(money.New(c.minor, money.USD), money.TWD); !errors.Is(err, c.want) {
			t.Errorf("%d at %s = %v, %v; want %v", c.minor, c.rate, got, err, c.want)
		}
	}
}

// The conversion is compared with one in big integers.
func TestConvertIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minor := rapid.Int64().Draw(t, "minor")
		coefficient := rapid.Int64Range(1, 999_999_999_999_999_999).Draw(t, "coefficient")
		scale := rapid.IntRange(0, 17).Draw(t, "scale")
		digits := fmt.Sprintf("%0*d", scale+1, coefficient)
		text := digits[:len(digits)-scale]
		if scale > 0 {
			text += "." + digits[len(digits)-scale:]
		}
		power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		product := new(big.Int).Mul(big.NewInt(minor), big.NewInt(coefficient))
		want, rest := new(big.Int).QuoRem(product, power, new(big.Int))
		twice := new(big.Int).Abs(rest)
		twice.Lsh(twice, 1)
		if c := twice.Cmp(power); c > 0 || c == 0 && want.Bit(0) == 1 {
			want.Add(want, big.NewInt(int64(product.Sign())))
		}
		got, err := money.Rate(text).Convert(money.New(minor, money.USD), money.TWD)
		if !want.IsInt64() {
			if !errors.Is(err, money.ErrOverflow) {
				t.Fatalf("%d at %s: %v, %v; want an overflow", minor, text, got, err)
			}
			return
		}
		if err != nil || got != money.New(want.Int64(), money.TWD) {
			t.Fatalf("%d at %s: %v, %v; want %v", minor, text, got, err, want)
		}
	})
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "32.15", "0.0309", "0.00000000000000001", "999999999999999999"} {
		if r, err := money.ParseRate(text); err != nil || string(r) != text {
			t.Errorf("ParseRate(%q) = %q, %v; want the same text", text, r, err)
		}
	}
	for _, text := range []string{"", "0", "0.000", "-1", "+1", "1e3", "NaN", "Infinity", "1.", ".1", "1,5", "0.000000000000000001", "1234567890123456789"} {
		if r, err := money.ParseRate(text); !errors.Is(err, money.ErrRate) {
			t.Errorf("ParseRate(%q) = %q, %v; want ErrRate", text, r, err)
		}
	}
}

// holder is a struct that holds amounts, as events do.
type holder struct{ A, B money.Amount }

func TestStoredForm(t *testing.T) {
	t.Parallel()
	reg := codec.Types(codec.Name[holder]("holder"))
	for _, h := range []holder{
		{},
		{money.New(1250, money.USD), money.Zero(money.TWD)},
		{money.New(-7, money.TWD), money.New(math.MinInt64, money.USD)},
		{A: money.New(5, "")},
	} {
		manifest, data, err := reg.Encode(h)
		if err != nil {
			t.Fatal(err)
		}
		back, err := reg.Decode(manifest, data)
		if err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("%+v was decoded as %+v, error %v; want equal values", h, back, err)
		}
	}
	_, data, err := reg.Encode(holder{A: money.New(1250, money.USD)})
	if want := "\x82\xa1A\xa912.50 USD\xa1B\xa0"; err != nil || string(data) != want {
		t.Errorf("the stored form is %q, %v; want %q", data, err, want)
	}
}

func FuzzAmount(f *testing.F) {
	for _, s := range []string{"", "12.50 USD", "-0.07 TWD", "0.00", "1.005 USD", "99999999999999999999 USD", "1 USD EUR", "1.00 TOOLONGCODE"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a money.Amount
		if a.UnmarshalText([]byte(text)) != nil {
			return
		}
		again, err := a.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var b money.Amount
		if err := b.UnmarshalText(again); err != nil || a != b {
			t.Fatalf("%q was parsed as %v, written as %q and read as %v, error %v; want equal amounts", text, a, again, b, err)
		}
	})
}

func FuzzRate(f *testing.F) {
	for _, s := range []string{"", "32.15", "0", "1e9", "0.000000000000000001", "Inf"} {
		f.Add(s, int64(12345))
	}
	f.Fuzz(func(t *testing.T, text string, minor int64) {
		r, err := money.ParseRate(text)
		if err != nil {
			return
		}
		got, err := r.Convert(money.New(minor, money.USD), money.TWD)
		if err != nil && !errors.Is(err, money.ErrOverflow) {
			t.Fatalf("%d at %s: error %v, want none or ErrOverflow", minor, r, err)
		}
		if err == nil && got.Minor() != 0 && (got.Minor() > 0) != (minor > 0) {
			t.Fatalf("%d at %s converts to %v, want the same sign", minor, r, got)
		}
	})
}
