import { CopyButton } from '../../components/copy-button.tsx';
import { Popover } from '../../components/popover.tsx';
import type { Run } from './trace-source.ts';

/**
 * Copies the run as JSON, or the request that reads it. The request refers to the API key by a variable, because the
 * browser does not have the key.
 */
export function CopyMenu({
  run,
  text,
  isShared,
}: {
  readonly run: Run;
  readonly text: string;
  readonly isShared: boolean;
}) {
  const { origin } = window.location;
  return (
    <Popover label="Copy ▾" end>
      {() => (
        <>
          <CopyButton className="option" label="Run as JSON" text={() => text} />
          <CopyButton className="option" label="Id" text={() => run.id} />
          <CopyButton className="option" label="Link" text={() => window.location.href} />
          {!isShared && (
            <>
              <CopyButton
                className="option"
                label="curl"
                text={() => `curl -H "x-api-key: $LANGSMITH_API_KEY" '${origin}/api/v1/runs/${run.id}'`}
              />
              <CopyButton
                className="option"
                label="JavaScript SDK"
                text={() =>
                  `import { Client } from 'langsmith';\nconst run = await new Client({ apiUrl: '${origin}' }).readRun('${run.id}');`
                }
              />
              <CopyButton
                className="option"
                label="Python SDK"
                text={() => `from langsmith import Client\nrun = Client(api_url="${origin}").read_run("${run.id}")`}
              />
            </>
          )}
        </>
      )}
    </Popover>
  );
}
