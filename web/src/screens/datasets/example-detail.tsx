import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { call } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { CopyButton } from '../../components/copy-button.tsx';
import { FigureList } from '../../components/figure-list.tsx';
import { Icon } from '../../components/icon.tsx';
import { Problem, QueryState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { formatExact } from '../../components/values/exact-json.ts';
import { JsonTree } from '../../components/values/json-tree.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { ExampleForm } from './example-form.tsx';
import { type Example, type ExampleSource, listSplits, omitSplits, useExample } from './example-source.ts';

/** All fields of an example. With `editsDatasetId`, also buttons that change the example in this dataset. */
export function ExampleDetail({
  source,
  id,
  version,
  editsDatasetId,
  onClose,
}: {
  readonly source: ExampleSource;
  readonly id: string;
  readonly version: string | undefined;
  readonly editsDatasetId?: string | undefined;
  readonly onClose: () => void;
}) {
  const example = useExample(source, id, version);
  const [isEditing, setEditing] = useState(false);
  return (
    <section className="example-detail stack" aria-label="Example">
      <header className="row wrap">
        <h2>Example</h2>
        <span className="spacer" />
        {example.data && <CopyButton label="Copy" text={() => formatExact(example.data)} />}
        {example.data && editsDatasetId !== undefined && !isEditing && (
          <Button onClick={() => setEditing(true)}>Edit</Button>
        )}
        {editsDatasetId !== undefined && <DeleteButton id={id} datasetId={editsDatasetId} onDeleted={onClose} />}
        <Button kind="quiet icon" aria-label="Close" title="Close (Escape)" onClick={onClose}>
          <Icon name="close" />
        </Button>
      </header>
      <QueryState query={example}>
        {(found) =>
          isEditing && editsDatasetId !== undefined ? (
            <ExampleForm
              datasetId={editsDatasetId}
              example={found}
              onSaved={() => setEditing(false)}
              onCancel={() => setEditing(false)}
            />
          ) : (
            <ExampleValues example={found} />
          )
        }
      </QueryState>
    </section>
  );
}

function DeleteButton({
  id,
  datasetId,
  onDeleted,
}: {
  readonly id: string;
  readonly datasetId: string;
  readonly onDeleted: () => void;
}) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => call('delete', '/api/v1/examples/{example_id}', { path: { example_id: id } }),
    onSuccess: () => {
      onDeleted();
      return client.invalidateQueries({ queryKey: ['dataset', datasetId] });
    },
  });
  return (
    <>
      <ConfirmButton
        label="Delete"
        name="Delete the example"
        question="Delete the example from the newest version? Earlier versions keep it."
        onConfirm={() => remove.mutate()}
      />
      <Problem message={remove.error?.message} />
    </>
  );
}

function ExampleValues({ example }: { readonly example: Example }) {
  const { id, inputs, outputs, source_run_id, created_at, modified_at } = example;
  const splits = listSplits(example);
  const metadata = omitSplits(example);
  return (
    <>
      <ValueView title="Inputs" value={inputs} />
      {outputs ? <ValueView title="Outputs" value={outputs} /> : <p className="muted">The example has no outputs.</p>}
      {Object.keys(metadata).length > 0 && (
        <section aria-label="Metadata">
          <h2>Metadata</h2>
          <JsonTree value={metadata} />
        </section>
      )}
      <Attachments urls={example.attachment_urls} />
      <FigureList
        className="run-figures"
        figures={{
          Id: <span className="mono">{id}</span>,
          Splits: splits.length > 0 && (
            <span className="row wrap">
              {splits.map((split) => (
                <span key={split} className="badge">
                  <Value text={split} />
                </span>
              ))}
            </span>
          ),
          Created: <Time at={created_at} />,
          Changed: <Time at={modified_at} />,
          From: source_run_id && (
            <Link to="/runs/$runId" params={{ runId: source_run_id }}>
              Run
            </Link>
          ),
        }}
      />
    </>
  );
}

function Attachments({ urls }: { readonly urls: Example['attachment_urls'] }) {
  const found = Object.entries(urls ?? {});
  if (found.length === 0) return null;
  return (
    <section aria-label="Attachments">
      <h2>Attachments</h2>
      <ul className="attachments">
        {found.map(([key, { presigned_url: url }]) => {
          const name = key.replace(/^attachment\./, '');
          // The host in the URL may be unknown to the browser, so only the path is used.
          const path = url === undefined ? undefined : new URL(url, window.location.origin).pathname;
          return (
            <li key={key}>
              <a href={path} download={name}>
                <Value text={name} />
              </a>
            </li>
          );
        })}
      </ul>
    </section>
  );
}
