import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, it } from 'vitest';
import { pythonEnvironment } from '../e2e/python/environment.ts';
import { stackPart } from '../engines/stack.ts';
import { type GuidePage, type GuideStep, parseGuidePage } from './guide-page.ts';
import { GuideSession } from './guide-session.ts';

const guide = fileURLToPath(new URL('../../docs/guide/', import.meta.url));

/** Names without `.md`. */
export const guidePages = readdirSync(guide)
  .filter((name) => name.endsWith('.md'))
  .map((name) => name.slice(0, -'.md'.length));

export const readGuidePage = (page: string): GuidePage => parseGuidePage(readFileSync(`${guide}${page}.md`, 'utf8'));

/** A test for each step of a page, in order; the steps after a failed one are not run. */
export function describeGuidePage(page: string): void {
  const { steps } = readGuidePage(page);
  describe(`docs/guide/${page}.md runs`, () => {
    let session: GuideSession;
    let failed: string | undefined;
    beforeAll(async () => {
      session = await GuideSession.open();
    });
    afterAll(() => session?.close());

    for (const step of steps) {
      const tools = toolsFor(step);
      const title = `${step.language}, line ${step.blocks[0]?.line}`;
      it.skipIf('missing' in tools)(title, { timeout: 200_000 }, async ({ skip }) => {
        if ('missing' in tools) return;
        if (failed !== undefined) return skip(`${failed} failed`);
        failed = title;
        session.export(tools.variables);
        await session.run(page, step, tools.python);
        failed = undefined;
      });
    }

    it('and leaves nothing running', { timeout: 90_000 }, async ({ skip }) => {
      if (failed !== undefined) return skip(`${failed} failed`);
      await session.ended();
    });
  });
}

interface Tools {
  readonly python?: string;
  readonly variables: Readonly<Record<string, string>>;
}

/** What a step needs that not every machine has. Without it the step is skipped, and fails in CI. */
function toolsFor(step: GuideStep): Tools | { missing: string } {
  if (step.need === 's3') {
    const part = stackPart('s3');
    return part ? { variables: s3Variables(part) } : { missing: 's3' };
  }
  if (step.language !== 'python') return { variables: {} };
  const readsParquet = step.blocks.some(({ code }) => /^import pandas\b/m.test(code));
  const environment = pythonEnvironment(readsParquet ? 'parquet' : 'sdk');
  if ('python' in environment) return { ...environment, variables: {} };
  if (process.env.CI === 'true') throw new Error(environment.missing);
  console.warn(`skipped: ${environment.missing}`);
  return environment;
}

/** As a reader has them who owns a bucket. */
function s3Variables(part: Readonly<Record<string, string>>): Record<string, string> {
  return {
    S3_ENDPOINT: part.endpoint ?? '',
    S3_BUCKET: part.bucket ?? '',
    AWS_REGION: part.region ?? '',
    AWS_ACCESS_KEY_ID: part.writerAccessKeyId ?? '',
    AWS_SECRET_ACCESS_KEY: part.writerSecretAccessKey ?? '',
  };
}
