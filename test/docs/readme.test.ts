/** README.md: its blocks run in order, in two terminals, and its links lead to files. */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { parseGuidePage } from './guide-page.ts';
import { describePage, s3Variables } from './run-guide.ts';

const checkout = fileURLToPath(new URL('../../', import.meta.url));
const text = readFileSync(`${checkout}README.md`, 'utf8');
const page = parseGuidePage(text);
const bucket = stackPart('s3');

it('README.md has no block of an unknown kind, and no link to a missing file', () => {
  const links = [...text.matchAll(/\]\(([^)#]+)(?:#[^)]*)?\)/g)].map(([, link]) => `${link}`);
  expect(page.problems).toEqual([]);
  expect(links.filter((link) => !link.includes('://') && !existsSync(`${checkout}${link}`))).toEqual([]);
});

describePage('README', page, {
  variables: bucket ? { ...s3Variables(bucket), RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true' } : {},
  adapt: (code, serverOutput, session) =>
    code
      // A reader pastes the key that the first start printed.
      .replace('LANGSMITH_API_KEY=...', `LANGSMITH_API_KEY=${/^Admin key, .*: (\S+)$/m.exec(serverOutput)?.[1]}`)
      // Other suites run at the same time: the test uses free ports, and fails on errors of HTTP.
      .replaceAll('127.0.0.1:1984', `127.0.0.1:${session.variable('RUNLAKE_PORT')}`)
      .replaceAll('127.0.0.1:8000', `127.0.0.1:${session.variable('RUNLAKE_TOOLS_PORT')}`)
      .replaceAll('127.0.0.1:2024', `127.0.0.1:${session.variable('RUNLAKE_AGENTS_PORT')}`)
      .replaceAll(/^curl /gm, 'curl -fsS ')
      // The bucket of the stack is not at AWS.
      .replace('--region "$AWS_REGION"', '--region "$AWS_REGION" --endpoint "$S3_ENDPOINT"'),
  shown: [
    /Admin key, shown this once: \S+/,
    undefined,
    /"runs":\[\{.*"name":\s*"hello"[\s\S]*"billable_metric_name"[\s\S]*Open http:\S+\/runs\/[0-9a-f-]{36} in a browser/,
    /COMPLETED in .*: 1 rows? in 1 file/,
    /Runlake runs agents at/,
    /"word":"Sunday\."[\s\S]*"__interrupt__":\[\{[^\n]*"Shall I book it\?"[\s\S]*"booking":"booked: Lyon"/,
  ],
});
