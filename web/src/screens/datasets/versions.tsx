import { useQueryClient } from '@tanstack/react-query';
import { call } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { Popover } from '../../components/popover.tsx';
import { EmptyState, MoreButton, QueryState } from '../../components/states.tsx';
import { TagForm } from '../../components/tag-form.tsx';
import { ActionsHead, TimeCell, Value } from '../../components/text.tsx';
import type { DatasetSearch, DatasetTab } from './search.ts';
import { useVersions, type Version } from './use-versions.ts';
import { VersionDiff } from './version-diff.tsx';
import { VersionSelect } from './version-select.tsx';

/** The versions of a dataset with their tags, and the difference between two of them. */
export function Versions({ datasetId, search: { from, to }, onChange }: DatasetTab) {
  const versions = useVersions(datasetId);
  return (
    <QueryState query={versions}>
      {({ pages }) => {
        const rows = pages.flat();
        const at = to === undefined ? 0 : rows.findIndex(({ as_of, tags }) => as_of === to || tags.includes(to));
        const before = from ?? (at < 0 ? undefined : rows[at + 1]?.as_of);
        const after = to ?? rows[0]?.as_of;
        if (rows.length === 0)
          return (
            <EmptyState title="The dataset has no versions yet">Each write to its examples makes a version.</EmptyState>
          );
        return (
          <div className="versions">
            <section className="version-list" aria-label="Versions" tabIndex={0}>
              <table className="plain-table">
                <thead>
                  <tr>
                    <th>Version</th>
                    <th>Tags</th>
                    <ActionsHead />
                  </tr>
                </thead>
                <tbody>
                  {rows.map((version, index) => (
                    <VersionRow
                      key={version.as_of}
                      datasetId={datasetId}
                      version={version}
                      previous={rows[index + 1]?.as_of}
                      onChange={onChange}
                    />
                  ))}
                </tbody>
              </table>
              <MoreButton pages={versions} label="Show older versions" />
            </section>
            <section className="version-diff stack" aria-label="Difference">
              <div className="row wrap">
                <h2>Difference</h2>
                <span className="spacer" />
                <VersionSelect
                  label="From version"
                  fallback="Version before"
                  versions={rows}
                  version={from}
                  onSelect={(next) => onChange({ from: next })}
                />
                <span aria-hidden="true">→</span>
                <VersionSelect
                  label="To version"
                  fallback="Newest version"
                  versions={rows}
                  version={to}
                  onSelect={(next) => onChange({ to: next })}
                />
              </div>
              {before === undefined || after === undefined ? (
                <p className="muted">
                  {at < 0 || versions.hasNextPage
                    ? 'The version before is not in the list yet. Choose one, or show older versions.'
                    : 'There is no version before this one.'}
                </p>
              ) : (
                <VersionDiff key={`${before} ${after}`} datasetId={datasetId} from={before} to={after} />
              )}
            </section>
          </div>
        );
      }}
    </QueryState>
  );
}

const maxShownTags = 20;

function VersionRow({
  datasetId,
  version: { as_of, tags },
  previous,
  onChange,
}: {
  readonly datasetId: string;
  readonly version: Version;
  readonly previous: string | undefined;
  readonly onChange: (changes: DatasetSearch) => void;
}) {
  const client = useQueryClient();
  const canUpdate = usePermission('datasets:update');
  const setTag = async (tag: string) => {
    await call('put', '/api/v1/datasets/{dataset_id}/tags', { path: { dataset_id: datasetId }, body: { as_of, tag } });
    await client.invalidateQueries({ queryKey: ['dataset', datasetId, 'versions'] });
  };
  return (
    <tr>
      <TimeCell at={as_of} />
      <td>
        <span className="row wrap version-tags">
          {/* `latest` is the last one. Test frameworks set a tag for each commit. */}
          {tags.slice(-maxShownTags).map((tag) => (
            <span key={tag} className="badge">
              <Value text={tag} />
            </span>
          ))}
          {tags.length > maxShownTags && <span className="muted">{tags.length - maxShownTags} more tags</span>}
        </span>
      </td>
      <td>
        <span className="row">
          <Button kind="quiet" onClick={() => onChange({ tab: undefined, version: as_of, example: undefined })}>
            Examples
          </Button>
          {previous !== undefined && (
            <Button kind="quiet" onClick={() => onChange({ from: previous, to: as_of })}>
              Changes
            </Button>
          )}
          {canUpdate && (
            <Popover label="Tag" className="button quiet" end>
              {(close) => <TagForm what="version" onSet={setTag} onDone={close} />}
            </Popover>
          )}
        </span>
      </td>
    </tr>
  );
}
