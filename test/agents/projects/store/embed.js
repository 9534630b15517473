const meanings = [/soup|food|hungry/i, /rain|weather|umbrella/i, /train|travel|station/i];

/** How often a text names each of three things; fails where it is told to. */
export function embed(texts) {
  return texts.map((text) => {
    if (text === 'fail') throw new RangeError('the embedder fails on purpose');
    return meanings.map((meaning) => (meaning.test(text) ? 1 : 0.01));
  });
}
