import type { TokenSigner } from '../../../infra/signing/token-signer.ts';
import { feedbackToken } from '../../feedback/feedback-token.ts';
import type { EndedRun, RunSender } from '../runs/run-row.ts';

/** By key. */
export type FeedbackLinks = (run: EndedRun) => Readonly<Record<string, string>> | undefined;

/** Links under which feedback can be left on the trace of a run that asked for that, without a key. The same each time. */
export function feedbackLinks(ports: {
  readonly signer: TokenSigner;
  /** The public URL of a token. */
  readonly urlOf: (token: string) => string;
  readonly validHours: number;
  /** Whose a run's trace is that names nobody. */
  readonly defaultSender: RunSender;
}): FeedbackLinks {
  return ({ kwargs, sender, runId, endedAt, removed }) => {
    if (removed || kwargs.feedback_keys === undefined) return undefined;
    const { workspaceId, userId } = { ...ports.defaultSender, ...sender };
    const expiresAtSeconds = Math.floor(Date.parse(endedAt) / 1_000) + ports.validHours * 3_600;
    const linkOf = (key: string) =>
      ports.urlOf(feedbackToken(ports.signer, { workspaceId, userId, runId, key }, expiresAtSeconds));
    return Object.fromEntries(kwargs.feedback_keys.map((key) => [key, linkOf(key)]));
  };
}
