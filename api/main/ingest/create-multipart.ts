import { acceptMultipart } from '../../../pipelines/ingest/accept/accept-multipart.ts';
import { defineOperation } from '../../server/operation.ts';
import { acceptanceSchema, answerAccepted } from './acceptance.ts';
import { batchErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { withBody } from './with-body.ts';

/** `POST /runs/multipart`: the route that stock SDKs use. */
export const createMultipart = defineOperation({
  operationId: 'createRunMultipart',
  method: 'POST',
  path: '/runs/multipart',
  tag: 'ingest',
  summary: 'Send a batch of runs as multipart/form-data',
  description:
    'Parts: `post.<run id>` and `patch.<run id>` (a run as JSON), `post|patch.<run id>.<field>` (inputs, outputs, events, extra, ' +
    'error, serialized), `feedback.<id>` (JSON), `attachment.<run id>.<name>` (bytes). The body may be compressed with gzip or ' +
    'zstd. Responds with 202 when all accepted items are durable; the response lists invalid items.',
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
