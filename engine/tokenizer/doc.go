// Package tokenizer turns text into token ids and back, exactly as Hugging Face tokenizers does, for
// byte-level BPE vocabularies: those of GPT-2, SmolLM, Llama 3 and Qwen 2.
//
// [FromGGUF] and [FromJSON] read a model's vocabulary; [Tokenizer.Encode] and [Tokenizer.Decode] are what
// most readers need. [Stream] decodes one token at a time and never emits half a character.
// [Tokenizer.EncodeChat] renders a conversation with the model's own chat template and encodes it.
//
// The rules it keeps; the code and the tests cite them by number:
//
//   - T1. Valid UTF-8 encodes to the ids that Hugging Face tokenizers gives, and ids decode to its text.
//     Hence a byte of valid UTF-8 for which the vocabulary has no token is dropped, as it is there
//     (SmolLM2 lacks 21 of the 256 bytes, most of which UTF-8 never uses).
//   - T2. Invalid UTF-8, which Hugging Face cannot be given, encodes byte by byte and comes back from
//     [Tokenizer.Bytes] unchanged (after NFC where the vocabulary asks for it); a byte without a token is
//     an error then.
//   - T3. The concatenation of what a Stream returns is what Decode returns for the same ids.
//   - T4. Time is near linear in the length of the text, whatever the text.
//   - T5. Nothing is guessed: an unknown model type, pre-tokenizer, normaliser or decoder is an error that
//     names the field. Truncation and padding stored in a tokenizer.json are the one thing ignored, because
//     they belong to a caller's batch and not to the vocabulary.
//
// It does not know the model, sampling, or where vocabularies lie on disk. It does not do WordPiece, Unigram
// or SentencePiece, and it does not undo the spaces that some libraries remove after decoding
// (clean_up_tokenization_spaces).
package tokenizer
