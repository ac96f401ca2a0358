# Run once, when the data folder is made: a role and a database of its own for Optuna's storage and for MLflow's.
for role in optuna mlflow; do
  psql --quiet --variable ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
       --set password="$(cut -d: -f5 "/run/postgres-secrets/files/$role.pgpass")" --set role="$role" <<'SQL'
CREATE ROLE :"role" LOGIN PASSWORD :'password';
CREATE DATABASE :"role" OWNER :"role";
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
SQL
done
