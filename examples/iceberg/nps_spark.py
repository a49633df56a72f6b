#!/usr/bin/env python3
"""NPS by month and segment over a studysync warehouse in an Iceberg catalog, with Apache Spark on all cores.

    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.2,org.apache.iceberg:iceberg-aws-bundle:1.10.2 \\
        nps_spark.py --catalog https://catalog.example.com --warehouse lake --segment meta_language

The segment is any column of `responses`, for example meta_language, meta_os or survey_id. The key of the catalog comes from
STUDYSYNC_ICEBERG_CREDENTIAL (ID:SECRET), and those of the bucket from the variables of AWS. Settings of Spark, such as the master,
are given to spark-submit. The figures are those of the view nps_by_month_per_question, by segment: only answers that count, from 0 to 10.
"""

import argparse
import os
import time

from pyspark.sql import SparkSession, functions as f


def session(arguments):
    catalog = "spark.sql.catalog.lake"
    builder = SparkSession.builder.appName("studysync NPS").config("spark.sql.session.timeZone", "UTC")
    settings = {
        catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "rest", f"{catalog}.uri": arguments.catalog,
        f"{catalog}.warehouse": arguments.warehouse, f"{catalog}.credential": os.environ.get("STUDYSYNC_ICEBERG_CREDENTIAL"),
        f"{catalog}.oauth2-server-uri": f"{arguments.catalog.rstrip('/')}/v1/oauth/tokens",
        f"{catalog}.s3.endpoint": os.environ.get("AWS_ENDPOINT_URL"), f"{catalog}.s3.path-style-access": "true",
    }
    for name, value in settings.items():
        if value:
            builder = builder.config(name, value)
    return builder.getOrCreate()


def nps_by_month(answers, segment):
    """NPS of each month and segment, with the standard error of the views."""
    score = f.col("answer_number")
    counted = answers.where("question_type = 'NPS' AND deleted_at IS NULL AND _vanished_at IS NULL").where(score.isin(*range(11)))
    groups = counted.groupBy(f.date_trunc("month", "created_at").cast("date").alias("month"), f.col(segment).alias("segment"))
    tallied = groups.agg(f.count("*").alias("responses"), f.count(f.when(score >= 9, 1)).alias("promoters"),
                         f.count(f.when(score <= 6, 1)).alias("detractors"))
    difference = f.col("promoters") - f.col("detractors")
    variance = f.greatest(f.col("promoters") + f.col("detractors") - difference * difference / f.col("responses"), f.lit(0))
    error = f.when(f.col("responses") > 1, 100 * f.sqrt(variance / (f.col("responses") - 1) / f.col("responses")))
    return tallied.withColumn("nps", 100 * difference / f.col("responses")).withColumn("standard_error", error).orderBy("month", "segment")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", required=True, help="address of the Iceberg REST catalog")
    parser.add_argument("--warehouse", required=True, help="name of the warehouse in the catalog")
    parser.add_argument("--namespace", default="studysync")
    parser.add_argument("--segment", default="meta_language", help="a column of responses (default: %(default)s)")
    arguments = parser.parse_args()
    spark = session(arguments)
    answers = spark.table(f"lake.{arguments.namespace}.responses")
    started = time.monotonic()
    found = nps_by_month(answers, arguments.segment)
    found.show(1000, truncate=False)
    print(f"{answers.count()} answers on {spark.sparkContext.defaultParallelism} cores in {time.monotonic() - started:.1f} s")
    return found


if __name__ == "__main__":
    main()
