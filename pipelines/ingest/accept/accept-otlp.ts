import { runInTimeSlices, type StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import { attachmentEvents } from '../../../schemas/topics.ts';
import { readAttachment } from '../../attachments/read-attachment.ts';
import type { BodyMemory } from '../body/body-budget.ts';
import { decodeStringBytes } from '../json/scan-string.ts';
import type { OtlpDraft } from '../otlp/map-span.ts';
import { readOtlp } from '../otlp/read-otlp.ts';
import { type AcceptDeps, acceptDrafts, type Companion } from './accept-drafts.ts';
import { type Acceptance, Rejections, type RunDraft, type Sender } from './draft.ts';

/** Maximum size of the JSON of all spans of one request, as a multiple of the maximum size of a body. */
const maxTextFactor = 2;

interface OtlpBody {
  readonly body: Buffer;
  readonly contentType: string | undefined;
  /** Project for spans that name no project themselves. */
  readonly project: Pick<RunDraft, 'projectName' | 'agentProject'>;
  readonly memory: BodyMemory;
}

/**
 * Handles `POST /otel/v1/traces`. The body is an OTLP ExportTraceServiceRequest; each span becomes a run.
 *
 * @throws the errors of `readOtlp` and `acceptDrafts`.
 */
export async function acceptOtlp(
  sender: Sender,
  { body, contentType, project, memory }: OtlpBody,
  deps: AcceptDeps,
): Promise<Acceptance> {
  const { maxJsonDepth: maxDepth, maxParts, maxBodyBytes } = deps.config;
  const maxBytes = maxTextFactor * maxBodyBytes;
  const reserve = (bytes: number) => memory.take(bytes);
  const addItem = () => memory.addItem();
  const { drafts, rejected: rejectedSpans } = await runInTimeSlices(
    readOtlp({ body, contentType, maxDepth, maxParts, maxBytes, reserve, addItem }),
  );
  const rejected = new Rejections();
  for (const { index, reason } of rejectedSpans) rejected.addInconsistentRun(`span ${index}`, reason);
  const named = drafts.map((draft) =>
    draft.projectId === undefined && draft.projectName === undefined ? { ...draft, ...project } : draft,
  );
  const companions = await runInTimeSlices(encodeAttachments(sender, drafts, memory, deps, rejected));
  return acceptDrafts({ sender, drafts: named, rejected, companions }, deps);
}

/** Encodes the attachments of spans as log messages. An attachment that is too large is rejected, its run is not. */
function* encodeAttachments(
  sender: Sender,
  drafts: readonly OtlpDraft[],
  memory: BodyMemory,
  deps: AcceptDeps,
  rejected: Rejections,
): StepwiseWork<Companion[]> {
  const events: Companion[] = [];
  for (const { index, runId, attachments } of drafts) {
    for (const { name, mimeType, content: json } of attachments) {
      const part = `span ${index}, attachment ${name}`;
      memory.addItem();
      // The decoded content and the message.
      memory.take(2 * json.length);
      try {
        const content = Buffer.from(decodeStringBytes(json, 0, json.length), 'base64');
        const message = readAttachment(sender, { runId, name, mimeType, content }, deps);
        events.push({ topic: attachmentEvents, runId, part, message });
      } catch (error) {
        rejected.addCaught(part, error);
      }
      yield;
    }
  }
  return events;
}
