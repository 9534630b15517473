import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type ComponentProps, useState } from 'react';
import { type Answer, call } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { StatusMark } from '../../components/run-marks.tsx';
import { EmptyState, Problem, QueryState } from '../../components/states.tsx';
import { showInvisible, TextCell, TimeCell, Value } from '../../components/text.tsx';
import { NewDestination, RotateCredentials } from './destination-forms.tsx';
import { type Destination, describeLocation } from './paths.ts';
import { useDestinations } from './use-exports.ts';

type Check = Answer<'post', '/api/v1/bulk-exports/destinations/{destination_id}/check'>['checks'][number];

/** Destinations of exports. Credentials are write-only. */
export function Destinations() {
  const client = useQueryClient();
  const canManage = usePermission('bulk-exports:manage');
  const destinations = useDestinations();
  const [isAdding, setAdding] = useState(false);
  const [rotating, setRotating] = useState<Destination>();
  const refresh = () => client.invalidateQueries({ queryKey: ['export-destinations'] });
  const check = useMutation({
    mutationFn: ({ id }: Destination) =>
      call('post', '/api/v1/bulk-exports/destinations/{destination_id}/check', { path: { destination_id: id } }),
  });
  const remove = useMutation({
    mutationFn: ({ id }: Destination) =>
      call('delete', '/api/v1/bulk-exports/destinations/{destination_id}', { path: { destination_id: id } }),
    onSuccess: refresh,
  });
  /** Shows the changed destination, and checks its access to the store. */
  const onSaved = (saved: Destination) => {
    setAdding(false);
    setRotating(undefined);
    void refresh();
    check.mutate(saved);
  };
  return (
    <div className="page-body stack">
      {canManage && !isAdding && (
        <div className="row">
          <Button kind="primary" onClick={() => setAdding(true)}>
            New destination
          </Button>
        </div>
      )}
      {isAdding && <NewDestination onSaved={onSaved} onCancel={() => setAdding(false)} />}
      {rotating && (
        <RotateCredentials
          key={rotating.id}
          destination={rotating}
          onSaved={onSaved}
          onCancel={() => setRotating(undefined)}
        />
      )}
      <Problem message={(check.error ?? remove.error)?.message} />
      {check.variables && !check.error && <Checks destination={check.variables} checks={check.data?.checks} />}
      <QueryState query={destinations}>
        {(found) =>
          found.length === 0 ? (
            <EmptyState title="No destinations">
              An export needs a bucket, or a folder of the server.
              {canManage ? ' Create one above.' : ' Your key cannot create one.'}
            </EmptyState>
          ) : (
            <PlainTable
              label="Destinations"
              columns={['Name', 'Type', 'Location', 'Endpoint', 'Credentials', 'Created']}
              hasActions={canManage}
            >
              {found.map((each) => (
                <tr key={each.id}>
                  <TextCell text={each.display_name} />
                  <td>{each.destination_type === 'local' ? 'Folder' : 'S3'}</td>
                  <TextCell text={describeLocation(each)} />
                  <TextCell text={each.config.endpoint_url ?? each.config.region ?? ''} />
                  <td>{describeCredentials(each)}</td>
                  <TimeCell at={each.created_at} />
                  {canManage && (
                    <td>
                      <div className="row">
                        <Button
                          kind="quiet"
                          aria-label={showInvisible(`Test ${each.display_name}`)}
                          disabled={check.isPending}
                          onClick={() => check.mutate(each)}
                        >
                          Test
                        </Button>
                        {each.destination_type !== 'local' && (
                          <Button
                            kind="quiet"
                            aria-label={showInvisible(`Replace the credentials of ${each.display_name}`)}
                            onClick={() => setRotating(each)}
                          >
                            Credentials
                          </Button>
                        )}
                        <ConfirmButton
                          label="Delete"
                          name={`Delete ${each.display_name}`}
                          question={`Delete ${each.display_name} with its credentials? Exported files stay.`}
                          onConfirm={() => remove.mutate(each)}
                        />
                      </div>
                    </td>
                  )}
                </tr>
              ))}
            </PlainTable>
          )
        }
      </QueryState>
    </div>
  );
}

function describeCredentials({ destination_type, credentials_keys }: Destination): string {
  if (destination_type === 'local') return '–';
  if (credentials_keys.length === 0) return 'of the server';
  return credentials_keys.includes('session_token') ? 'stored, temporary' : 'stored';
}

const stepNames: Readonly<Record<Check['step'], string>> = {
  reach: 'Reach',
  write: 'Write',
  read: 'Read',
  delete: 'Delete',
};
const outcomes: Readonly<Record<Check['outcome'], ComponentProps<typeof StatusMark>>> = {
  passed: { sign: '✓', label: 'passed', kind: 'success' },
  forbidden: { sign: '–', label: 'no permission; exports do not need it', kind: 'pending' },
  failed: { sign: '✕', label: 'failed', kind: 'error' },
  not_run: { sign: '–', label: 'not run', kind: '' },
};

function Checks({
  destination,
  checks,
}: {
  readonly destination: Destination;
  readonly checks: readonly Check[] | undefined;
}) {
  return (
    <section className="export-preview stack" aria-label="Test of the destination" role="status">
      <h2>
        Test of <Value text={destination.display_name} />
      </h2>
      {checks === undefined ? (
        <p className="muted">A small object is written, read and deleted …</p>
      ) : (
        <ul className="destination-checks">
          {checks.map(({ step, outcome, message, remedy }) => (
            <li key={step}>
              <strong>{stepNames[step]}</strong>
              <StatusMark {...outcomes[outcome]} />
              {message && <p className="error-text">{showInvisible(message)}</p>}
              {remedy && <p className="muted">{remedy}</p>}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
