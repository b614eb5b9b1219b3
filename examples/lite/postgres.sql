-- Run once by the image of PostgreSQL, when its data folder is empty.
CREATE DATABASE lite_state;
CREATE DATABASE lite_data;
