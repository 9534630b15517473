import type { Config } from '../../infra/config/settings.ts';
import { type FeedbackLinks, feedbackLinks } from '../../pipelines/agents/execute/publish-end.ts';
import type { RunSender } from '../../pipelines/agents/runs/run-row.ts';
import { feedbackSigner } from '../../pipelines/feedback/feedback-token.ts';
import { urlUnder } from '../server/public-base.ts';

/** Lifetime of feedback links from the end of the run. */
export const feedbackLinkHours = 24;

/** Returns a factory of feedback links under the public URL of the main API; undefined if no public URL is configured. */
export function feedbackLinksOf(
  { publicUrl }: Pick<Config, 'publicUrl'>,
  secretKey: string,
  defaultSender: RunSender,
): FeedbackLinks | undefined {
  if (publicUrl === undefined) return undefined;
  const urlOf = (token: string) => urlUnder(publicUrl, `/feedback/tokens/${token}`);
  return feedbackLinks({ signer: feedbackSigner(secretKey), urlOf, validHours: feedbackLinkHours, defaultSender });
}
