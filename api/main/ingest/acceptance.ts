import { Type } from 'typebox';
import type { Acceptance } from '../../../pipelines/ingest/accept/draft.ts';
import { listedRejections } from '../../../pipelines/ingest/accept/rejection.ts';
import { Answer } from '../../server/operation.ts';

/** The answer of every ingest operation: nothing more to say where all runs were taken. */
export const acceptanceSchema = Type.Object(
  {
    message: Type.Optional(
      Type.String({ description: 'How many items (runs, attachments, feedback) were taken, if not all were.' }),
    ),
    rejected: Type.Optional(
      Type.Array(
        Type.Object({
          run: Type.String({ description: 'The id of the run, or the name of the part that is not a run.' }),
          code: Type.String({ description: 'Code of the error catalogue.' }),
          reason: Type.String(),
        }),
        { description: `The items that were not taken and why; at most ${listedRejections}.` },
      ),
    ),
  },
  { description: 'Everything that was taken is durable.' },
);

/** 202 that names the runs that were not taken. */
export function answerAccepted({ accepted, rejected }: Acceptance): Answer {
  if (rejected.length === 0) return new Answer({ status: 202, body: {} });
  const total = accepted + rejected.length;
  return new Answer({
    status: 202,
    body: {
      message: `${accepted} of ${total} items were taken. ${rejected[0]?.error.message ?? ''}`,
      rejected: rejected
        .slice(0, listedRejections)
        .map(({ run, error }) => ({ run, code: error.code, reason: error.message })),
    },
  });
}
