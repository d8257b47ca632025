package tokenizer

// A byte-level vocabulary writes each byte as one printable character: bytes that print in Latin-1 stand for
// themselves, the other 68 are numbered upwards from U+0100 (Radford et al. 2019, the GPT-2 encoder).

// byteSymbol is the character that stands for each byte.
var byteSymbol = func() (t [256]rune) {
	next := rune(0x100)
	for b := range t {
		r := rune(b)
		printable := r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE && r <= 0xFF
		if !printable {
			r = next
			next++
		}
		t[b] = r
	}
	return t
}()

// symbolByte is the inverse of byteSymbol, -1 where a character stands for no byte.
var symbolByte = func() (t [0x144]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteSymbol {
		t[r] = int16(b)
	}
	return t
}()

// inAlphabet reports whether every character of token stands for a byte.
func inAlphabet(token string) bool {
	for _, r := range token {
		if int(r) >= len(symbolByte) || symbolByte[r] < 0 {
			return false
		}
	}
	return true
}

// tokenBytes returns the bytes that a token's text stands for. A token with any character outside the byte
// alphabet stands for its own UTF-8, special tokens such as "<｜end｜>" above all; Hugging Face's ByteLevel
// decoder has the same rule, with the same effect on added tokens such as "café", whose é is a byte.
func tokenBytes(token string) string {
	if isASCII(token) || !inAlphabet(token) {
		return token
	}
	out := make([]byte, 0, len(token))
	for _, r := range token {
		out = append(out, byte(symbolByte[r]))
	}
	return string(out)
}
