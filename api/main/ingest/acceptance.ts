import { Type } from 'typebox';
import type { Acceptance } from '../../../pipelines/ingest/accept/draft.ts';
import { listedRejections } from '../../../pipelines/ingest/accept/rejection.ts';
import { Answer } from '../../server/operation.ts';

/** Response of the ingest operations; empty if all items were accepted. */
export const acceptanceSchema = Type.Object(
  {
    message: Type.Optional(
      Type.String({ description: 'Number of accepted items (runs, attachments, feedback), if some were rejected.' }),
    ),
    rejected: Type.Optional(
      Type.Array(
        Type.Object({
          run: Type.String({ description: 'Id of the run, or name of the part if it is not a run.' }),
          code: Type.String({ description: 'Error code.' }),
          reason: Type.String(),
        }),
        { description: `Rejected items with their errors, at most ${listedRejections}.` },
      ),
    ),
  },
  { description: 'All accepted items are durable.' },
);

/** Builds the 202 response, which lists rejected items. */
export function answerAccepted({ accepted, rejected }: Acceptance): Answer {
  if (rejected.length === 0) return new Answer({ status: 202, body: {} });
  const total = accepted + rejected.length;
  return new Answer({
    status: 202,
    body: {
      message: `${accepted} of ${total} items were accepted. ${rejected[0]?.error.message ?? ''}`,
      rejected: rejected
        .slice(0, listedRejections)
        .map(({ run, error }) => ({ run, code: error.code, reason: error.message })),
    },
  });
}
