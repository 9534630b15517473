import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { StoreRules } from './store-item.ts';

/**
 * Embeds texts as unit vectors, so that the dot product of two vectors is their cosine similarity. Without an index
 * returns none.
 *
 * @throws STORE_EMBEDDER_UNUSABLE if the embedder throws or returns vectors of the wrong number or length; errors of
 *   the worker.
 */
export async function embedTexts({ index }: StoreRules, texts: readonly string[]): Promise<number[][]> {
  if (index === undefined || texts.length === 0) return [];
  const unusable = (reason: string, cause?: unknown) => runlakeError('STORE_EMBEDDER_UNUSABLE', { reason }, { cause });
  const distinct = [...new Set(texts)];
  const vectors = await index.embed(distinct).catch((error) => {
    if (isRunlakeError(error)) throw error;
    throw unusable(error instanceof Error ? error.message : String(error), error);
  });
  if (vectors.length !== distinct.length)
    throw unusable(`it returned ${vectors.length} vectors for ${distinct.length} texts`);
  const byText = new Map(distinct.map((text, order) => [text, unit(vectors[order]!, index.dims, unusable)]));
  return texts.map((text) => byText.get(text)!);
}

function unit(vector: readonly number[], dims: number, unusable: (reason: string) => Error): number[] {
  if (vector.length !== dims) throw unusable(`it returned a vector of ${vector.length} dimensions, not ${dims}`);
  const length = Math.hypot(...vector);
  if (!Number.isFinite(length)) throw unusable('it returned a vector with an element that is not a finite number');
  return vector.map((number) => (length === 0 ? 0 : number / length));
}
