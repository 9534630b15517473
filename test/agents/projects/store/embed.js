const meanings = [/soup|food|hungry/i, /rain|weather|umbrella/i, /train|travel|station/i];

/** Returns for each of three topics whether the text mentions it; throws for the text `fail`. */
export function embed(texts) {
  return texts.map((text) => {
    if (text === 'fail') throw new RangeError('the embedder fails on purpose');
    return meanings.map((meaning) => (meaning.test(text) ? 1 : 0.01));
  });
}
