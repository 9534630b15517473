import type { TokenSigner } from '../../../infra/signing/token-signer.ts';
import { feedbackToken } from '../../feedback/feedback-token.ts';
import type { EndedRun, RunSender } from '../runs/run-row.ts';

/** Returns the feedback links of a run by feedback key; undefined if it has none. */
export type FeedbackLinks = (run: EndedRun) => Readonly<Record<string, string>> | undefined;

/**
 * Creates signed links under which feedback on a run's trace can be left without an API key. Deterministic for a given run.
 */
export function feedbackLinks(deps: {
  readonly signer: TokenSigner;
  /** The public URL of a token. */
  readonly urlOf: (token: string) => string;
  readonly validHours: number;
  /** Owner of the trace of a run without a sender. */
  readonly defaultSender: RunSender;
}): FeedbackLinks {
  return ({ kwargs, sender, runId, endedAt, removed }) => {
    if (removed || kwargs.feedback_keys === undefined) return undefined;
    const { workspaceId, userId } = { ...deps.defaultSender, ...sender };
    const expiresAtSeconds = Math.floor(Date.parse(endedAt) / 1_000) + deps.validHours * 3_600;
    const createLink = (key: string) =>
      deps.urlOf(feedbackToken(deps.signer, { workspaceId, userId, runId, key }, expiresAtSeconds));
    return Object.fromEntries(kwargs.feedback_keys.map((key) => [key, createLink(key)]));
  };
}
