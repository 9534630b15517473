import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pythonEnvironment } from '../e2e/python/environment.ts';
import { stackPart } from '../engines/stack.ts';
import { type GuidePage, type GuideStep, parseGuidePage } from './guide-page.ts';
import { GuideSession } from './guide-session.ts';

const guide = fileURLToPath(new URL('../../docs/guide/', import.meta.url));

/** Names of the guide pages, without `.md`. */
export const guidePages = readdirSync(guide)
  .filter((name) => name.endsWith('.md'))
  .map((name) => name.slice(0, -'.md'.length));

export const readGuidePage = (page: string): GuidePage => parseGuidePage(readFileSync(`${guide}${page}.md`, 'utf8'));

/** Defines a test for each step of a page of docs/guide, in order; the steps after a failed one are not run. */
export function describeGuidePage(page: string): void {
  describePage(page, readGuidePage(page));
}

/** What a page of another folder expects from its reader. */
export interface PageSetup {
  /** Variables that the reader would set before the first step. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Applies the changes that the reader makes to a step, given the output of the last server. */
  adapt?(code: string, serverOutput: string, session: GuideSession): string;
  /** Patterns that the output of the step at the same index must match. */
  readonly shown?: readonly (RegExp | undefined)[];
}

export function describePage(page: string, { steps }: GuidePage, reader: PageSetup = {}): void {
  describe(`${page}.md runs`, () => {
    let session: GuideSession;
    let failed: string | undefined;
    let serverOutput = '';
    beforeAll(async () => {
      session = await GuideSession.open();
      session.export(reader.variables ?? {});
    });
    afterAll(() => session?.close());

    for (const [index, step] of steps.entries()) {
      const tools = findStepTools(step);
      const title = `${step.language}, line ${step.blocks[0]?.line}`;
      it.skipIf('missing' in tools)(title, { timeout: 200_000 }, async ({ skip }) => {
        if ('missing' in tools) return;
        if (failed !== undefined) return skip(`${failed} failed`);
        failed = title;
        session.export(tools.variables);
        const adapt = (code: string) => reader.adapt?.(code, serverOutput, session) ?? code;
        const blocks = step.blocks.map((block) => ({ ...block, code: adapt(block.code) }));
        const output = await session.run(page, { ...step, blocks }, tools.python);
        if (step.kind === 'server') serverOutput = output;
        const shown = reader.shown?.[index];
        if (shown !== undefined) expect(output).toMatch(shown);
        failed = undefined;
      });
    }

    it('and leaves nothing running', { timeout: 90_000 }, async ({ skip }) => {
      if (failed !== undefined) return skip(`${failed} failed`);
      await session.stopServer();
      await session.ended();
    });
  });
}

interface Tools {
  readonly python?: string;
  readonly variables: Readonly<Record<string, string>>;
}

/**
 * Returns the tools that a step needs and that not every machine has. If they are missing, the step is skipped; in CI
 * it fails.
 */
function findStepTools(step: GuideStep): Tools | { missing: string } {
  if (step.kind === 's3') {
    const part = stackPart('s3');
    return part ? { variables: s3Variables(part) } : { missing: 's3' };
  }
  if (step.language !== 'python') return { variables: {} };
  const readsParquet = step.blocks.some(({ code }) => /^import pandas\b/m.test(code));
  const environment = pythonEnvironment(readsParquet ? 'parquet' : 'sdk');
  return 'python' in environment ? { ...environment, variables: {} } : environment;
}

/** Returns the S3 variables that a reader who owns a bucket has set. */
export function s3Variables(part: Readonly<Record<string, string>>): Record<string, string> {
  return {
    S3_ENDPOINT: part.endpoint ?? '',
    S3_BUCKET: part.bucket ?? '',
    AWS_REGION: part.region ?? '',
    AWS_ACCESS_KEY_ID: part.writerAccessKeyId ?? '',
    AWS_SECRET_ACCESS_KEY: part.writerSecretAccessKey ?? '',
  };
}
