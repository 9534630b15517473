/**
 * The index of the first byte of the first ill-formed sequence between `start` and `end`; `end` if there is none.
 * Slow and exact; call it only after `isUtf8` returned false. Source: the Unicode standard, table of well-formed sequences.
 */
export function invalidUtf8Offset(bytes: Uint8Array, start: number, end: number): number {
  let index = start;
  while (index < end) {
    const lead = bytes[index]!;
    if (lead < 0x80) {
      index++;
      continue;
    }
    const length = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) === 0xe0 ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (length === 0 || index + length > end) return index;
    const second = bytes[index + 1]!;
    // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF.
    const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    if (second < lowest || second > highest) return index;
    for (let next = index + 2; next < index + length; next++) {
      if ((bytes[next]! & 0xc0) !== 0x80) return index;
    }
    index += length;
  }
  return end;
}
