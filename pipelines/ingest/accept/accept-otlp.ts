import { inSlices } from '../in-slices.ts';
import { readOtlp } from '../otlp/read-otlp.ts';
import { type AcceptDeps, acceptDrafts } from './accept-drafts.ts';
import type { Acceptance, Rejection } from './draft.ts';
import type { Sender } from './publish-runs.ts';
import { inconsistent } from './rejection.ts';

export interface OtlpBody {
  readonly body: Buffer;
  readonly contentType: string | undefined;
  /** The header Langsmith-Project: project of the spans that name none. */
  readonly projectName: string | undefined;
}

/**
 * `POST /otel/v1/traces`: an OTLP ExportTraceServiceRequest; each span becomes a run.
 * @throws what `readOtlp` and `acceptDrafts` throw.
 */
export async function acceptOtlp(
  sender: Sender,
  { body, contentType, projectName }: OtlpBody,
  deps: AcceptDeps,
): Promise<Acceptance> {
  const { maxJsonDepth: maxDepth, maxParts } = deps.config;
  const { drafts, rejected: refused } = await inSlices(readOtlp({ body, contentType, maxDepth, maxParts }));
  const rejected: Rejection[] = refused.map(({ index, reason }) => inconsistent(`span ${index}`, reason));
  const named = drafts.map((draft) =>
    draft.projectId === undefined && draft.projectName === undefined ? { ...draft, projectName } : draft,
  );
  return acceptDrafts(sender, named, rejected, deps);
}
