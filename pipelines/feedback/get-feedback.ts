import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { findLastEvent } from './find-feedback.ts';
import { type ShowDeps, showFeedback } from './show-feedback.ts';

/**
 * Reads one feedback as JSON.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; errors of the stores.
 */
export async function getFeedback(
  deps: ShowDeps,
  { tenantId, id, withUserNames }: { readonly tenantId: string; readonly id: string; readonly withUserNames: boolean },
): Promise<Buffer> {
  const last = await findLastEvent(deps.clickhouse, tenantId, id);
  if (last === undefined || last.deletedAtMicros !== undefined)
    throw runlakeError('NOT_FOUND', { what: `Feedback ${id}` });
  const [json] = await showFeedback(deps, tenantId, [last], { withUserNames });
  return json as Buffer;
}
