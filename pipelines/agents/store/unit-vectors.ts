import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StoreRules } from './store-item.ts';

/**
 * Vectors of texts, of length one, so that a sum of products is the cosine.
 *
 * @throws STORE_EMBEDDER_UNUSABLE where it throws, or what it gives does not fit; what a worker that is asked answers.
 */
export async function embedTexts({ index }: StoreRules, texts: readonly string[]): Promise<number[][]> {
  if (index === undefined || texts.length === 0) return [];
  const unusable = (reason: string, cause?: unknown) => fault('STORE_EMBEDDER_UNUSABLE', { reason }, { cause });
  const different = [...new Set(texts)];
  const vectors = await index.embed(different).catch((error) => {
    if (isRunlakeError(error)) throw error;
    throw unusable(error instanceof Error ? error.message : String(error), error);
  });
  if (vectors.length !== different.length)
    throw unusable(`it gave ${vectors.length} vectors for ${different.length} texts`);
  const byText = new Map(different.map((text, place) => [text, unit(vectors[place]!, index.dims, unusable)]));
  return texts.map((text) => byText.get(text)!);
}

function unit(vector: readonly number[], dims: number, unusable: (reason: string) => Error): number[] {
  if (vector.length !== dims) throw unusable(`it gave a vector of ${vector.length} numbers and not of ${dims}`);
  const length = Math.hypot(...vector);
  if (!Number.isFinite(length)) throw unusable('it gave a vector with something in it that is no number');
  return vector.map((number) => (length === 0 ? 0 : number / length));
}
