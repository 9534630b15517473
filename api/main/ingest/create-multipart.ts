import { acceptMultipart } from '../../../pipelines/ingest/accept/accept-multipart.ts';
import { defineOperation } from '../../server/operation.ts';
import { acceptanceSchema, answerAccepted } from './acceptance.ts';
import { batchErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { withBody } from './with-body.ts';

/** `POST /runs/multipart`: what stock SDKs send. */
export const createMultipart = defineOperation({
  operationId: 'createRunMultipart',
  method: 'POST',
  path: '/runs/multipart',
  tag: 'ingest',
  summary: 'Send a batch of runs as parts',
  description:
    'Parts: `post.<run id>` and `patch.<run id>` (a run as JSON), `post|patch.<run id>.<field>` (inputs, outputs, events, extra, ' +
    'error, serialized), `feedback.<id>` (JSON), `attachment.<run id>.<name>` (bytes). The whole body may be gzip or zstd. ' +
    'Answers 202 when everything that was taken is durable; inconsistent runs are named in the answer.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: [...batchErrors, 'INVALID_MULTIPART', 'INVALID_FEEDBACK', 'INVALID_ATTACHMENT'],
  rawBody: { contentTypes: ['multipart/form-data'], description: 'Runs, feedback and attachments as parts.' },
  schema: { response: { 202: acceptanceSchema } },
  async handler({ caller, request, services }) {
    const contentType = request.headers['content-type'] ?? '';
    const accept = (body: Buffer) => acceptMultipart(senderOf(caller), { body, contentType }, services.accept);
    return answerAccepted(await withBody({ request, caller }, services.config, accept));
  },
});
