import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { readFrom } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { formatCount } from '../../components/format.ts';
import { QueryState } from '../../components/states.tsx';
import { TextDiff } from '../../components/text-diff.tsx';
import { formatExact } from '../../components/values/exact-json.ts';
import { createDatasetSource, type Example, type ExampleSource, useExample } from './example-source.ts';

/** Number of added, removed and changed examples each that are listed at first. */
const maxListed = 50;

/** The examples that differ between two versions. A version is a time or a tag. */
export function VersionDiff({
  datasetId,
  from,
  to,
}: {
  readonly datasetId: string;
  readonly from: string;
  readonly to: string;
}) {
  const diff = useQuery({
    queryKey: ['dataset', datasetId, 'diff', from, to],
    ...readFrom('get', '/api/v1/datasets/{dataset_id}/versions/diff', {
      path: { dataset_id: datasetId },
      query: { from_version: from, to_version: to },
    }),
  });
  const source = useMemo(() => createDatasetSource(datasetId), [datasetId]);
  return (
    <QueryState query={diff}>
      {({ examples_added, examples_modified, examples_removed }) => {
        if (examples_added.length + examples_modified.length + examples_removed.length === 0)
          return <p className="muted">Both versions have the same examples.</p>;
        return (
          <>
            <Changes title="Changed" ids={examples_modified} source={source} from={from} to={to} />
            <Changes title="Added" ids={examples_added} source={source} to={to} />
            <Changes title="Removed" ids={examples_removed} source={source} from={from} />
          </>
        );
      }}
    </QueryState>
  );
}

interface Range {
  readonly source: ExampleSource;
  /** Undefined for examples that were added. */
  readonly from?: string;
  /** Undefined for examples that were removed. */
  readonly to?: string;
}

function Changes({ title, ids, ...range }: Range & { readonly title: string; readonly ids: readonly string[] }) {
  const [count, setCount] = useState(maxListed);
  if (ids.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3>
        {title} <span className="muted">{formatCount(ids.length)}</span>
      </h3>
      <ul className="change-list">
        {ids.slice(0, count).map((id) => (
          <Change key={id} id={id} isOpenAtFirst={ids.length === 1} {...range} />
        ))}
      </ul>
      {ids.length > count && (
        <Button onClick={() => setCount(count + 10 * maxListed)}>{formatCount(ids.length - count)} more</Button>
      )}
    </section>
  );
}

function Change({ id, isOpenAtFirst, ...range }: Range & { readonly id: string; readonly isOpenAtFirst: boolean }) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  return (
    <li>
      <button type="button" className="json-toggle mono" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span className={isOpen ? 'json-arrow open' : 'json-arrow'} aria-hidden="true">
          ▸
        </span>
        {id}
      </button>
      {isOpen && <ExampleDiff id={id} {...range} />}
    </li>
  );
}

function ExampleDiff({ id, source, from, to }: Range & { readonly id: string }) {
  const before = useExample(source, id, from, from !== undefined);
  const after = useExample(source, id, to, to !== undefined);
  const failed = before.error ? before : after;
  return (
    <QueryState
      query={{
        data:
          (from === undefined || before.data) && (to === undefined || after.data)
            ? [from === undefined ? '' : toText(before.data), to === undefined ? '' : toText(after.data)]
            : undefined,
        error: failed.error,
        refetch: failed.refetch,
      }}
    >
      {([old = '', now = '']) => <TextDiff label={`Difference of ${id}`} before={old} after={now} />}
    </QueryState>
  );
}

/** The fields of an example that a version holds, as text with a line for each value. */
function toText(example: Example | undefined): string {
  const { inputs, outputs, metadata } = example ?? {};
  return formatExact({ inputs, outputs, metadata });
}
